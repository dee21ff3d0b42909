"""How sure an answer is that was chosen from several programs: the share of them that agree, as a probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.selection import logistic
from ..core.trace import REFUSED, Draft

VOTES = (-2.40, 4.20)
"""Intercept and weight of the share of programs that gave the answer on the pictures."""
WORLDS = (-0.75, 2.44)
"""Intercept and weight of the agreement in random worlds, where one program alone was run on the pictures.

Both are logistic regressions over 982 questions about drawn pictures, with Qwen2.5-Coder-1.5B and five programs each
(benchmarks/confidence.py; docs/reports/language-models.md)."""

FEWEST = 3
"""Programs that a confidence takes."""


def sure_enough(answer: Answer, below: float) -> Answer:
    """Returns an answer with its confidence; "I don't know" where that is below a threshold.

    An answer of one program has none, nor of two, nor of a refused one: it stays as it is.
    """
    drafts = answer.trace.drafts
    if len(drafts) < FEWEST or any(draft.chosen and draft.fault in REFUSED for draft in drafts):
        return answer
    sure = confidence(drafts)
    if sure >= below:
        return replace(answer, confidence=sure)
    return replace(answer, text=DONT_KNOW, confidence=sure, abstained=True)


def confidence(drafts: Sequence[Draft]) -> float:
    """Returns the probability that the answer of the chosen program is right."""
    votes = votes_of(drafts)
    (first, weight), share = (WORLDS, worlds_of(drafts)) if votes is None else (VOTES, votes)
    return logistic(first + weight * share)


def worlds_of(drafts: Sequence[Draft]) -> float:
    """Returns how often the chosen program answers as the others do in random worlds, from 0 to 1."""
    return next(draft.agreement for draft in drafts if draft.chosen)


def votes_of(drafts: Sequence[Draft]) -> float | None:
    """Returns the share of programs run on the pictures that gave the answer; None where fewer than two were."""
    texts = [draft.answer for draft in drafts if draft.answer is not None]
    chosen = next(draft.answer for draft in drafts if draft.chosen)
    return sum(text == chosen for text in texts) / len(texts) if len(texts) > 1 else None
