"""How sure an answer is that was chosen from several programs: what the programs agree on, as a probability.

Two things are known of such an answer: how often its program agrees with the others in random worlds, and how many
programs gave it on the pictures. Logistic regression makes a probability of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..core.answer import Answer
from ..core.trace import Draft

DONT_KNOW = "I don't know"
"""The answer to what the models do not know, or not surely enough."""

WORLDS_ALONE = (0.0, 1.0)
"""Intercept, and weight of the agreement in random worlds, where one program was run on the pictures."""
WORLDS_AND_VOTES = (0.0, 1.0, 1.0)
"""Intercept, and weights of the agreement in random worlds and of the share of programs that gave the answer."""


def sure_enough(answer: Answer, below: float) -> Answer:
    """Returns an answer with its confidence; "I don't know" where that is below a threshold.

    An answer of one program has none, and stays as it is.
    """
    if not answer.trace.drafts:
        return answer
    sure = confidence(features(answer.trace.drafts))
    if sure >= below:
        return replace(answer, confidence=sure)
    return replace(answer, text=DONT_KNOW, confidence=sure, abstained=True)


def features(drafts: Sequence[Draft]) -> tuple[float, ...]:
    """Returns the agreement of the chosen program in random worlds; then, where several were run on the pictures, the
    share of these that gave its answer."""
    chosen = next(draft for draft in drafts if draft.chosen)
    said = [draft.answer for draft in drafts if draft.answer is not None]
    return (chosen.agreement, said.count(str(chosen.answer)) / len(said)) if len(said) > 1 else (chosen.agreement,)


def confidence(known: Sequence[float]) -> float:
    """Returns the probability that an answer with these features is right."""
    first, *weights = WORLDS_AND_VOTES if len(known) > 1 else WORLDS_ALONE
    return 1 / (1 + math.exp(-first - sum(weight * one for weight, one in zip(weights, known, strict=True))))
