"""Between what programs compute and what an answer holds: its text, and how sure it is.

The confidence of an answer that was chosen from several programs is the share of them that agree, as a probability.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import ProgramAnswerError
from ..core.question_kind import QuestionKind
from ..core.selection import logistic
from ..core.trace import REFUSED, Draft, ImageRef, TraceValue
from ..primitives.kinds import Image

_PICTURE = re.compile(r"(?:in |on |of )?(?:which|what) (?:of the )?(?:image|picture|photo|photograph)s?\b", re.I)


def replace_images(value: object, stands: Callable[[Image], TraceValue] = lambda image: image.ref) -> TraceValue:
    """Returns a value with every image replaced by what stands for it: a reference."""
    if isinstance(value, Image):
        return stands(value)
    if isinstance(value, list):
        return [replace_images(item, stands) for item in value]
    if isinstance(value, tuple):
        return tuple(replace_images(item, stands) for item in value)
    if isinstance(value, dict):
        return {key: replace_images(item, stands) for key, item in value.items()}
    return value


def answer_text(value: object) -> str:
    """Returns the value a program left in ``answer`` as text.

    True and False become yes and no, an image is named by its number, a list is joined by commas. A whole number is
    written in full, without its ``.0``; others have twelve significant digits at most, so that 0.1 + 0.2 is 0.3.

    Raises:
        ProgramAnswerError: there is nothing to say, such as None or an empty string.
    """
    text = _text(value)
    if not text:
        shown = "an empty list" if value in ([], ()) else repr(value)
        raise ProgramAnswerError(f"the program left {shown} in answer, which is no answer")
    return text


def release_text(value: object) -> str:
    """Returns the value a program left in ``answer`` as the paper's release does: as Python prints it.

    True is "True", which its metric takes for another answer than yes. Images are their places there, from 0.
    """
    return str(replace_images(value, lambda image: image.index - 1))


def fitted_answer(value: object, question: str, kind: QuestionKind) -> str:
    """Returns the value a program left in ``answer`` as text, in the words of the kind that its question wants.

    Only what loses nothing is changed: see :meth:`.QuestionKind.fit`.

    Raises:
        ProgramAnswerError: it is of another kind, there is nothing to say, or it numbers a picture, which nobody can
            read: places count from 0, and pictures from 1.
    """
    text = answer_text(value)
    if text == DONT_KNOW:  # a reader may say so of anything
        return text
    if _PICTURE.match(question) and text.isdecimal():
        raise ProgramAnswerError(
            f"the question wants a picture, not {text}.", hint="Leave the picture itself, as in answer = images[0]."
        )
    fitted = kind.fit(text)
    wrong = kind.misfit(fitted)
    if wrong:
        raise ProgramAnswerError(wrong)
    return fitted


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Image):
        return str(ImageRef(value.index))
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.12g}"
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        return ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items())
    return str(value).strip()


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
