"""More pictures than a model can hold at once: read in parts where the question allows it, else refused at once.

A model that tells its ``context`` and can ``count`` the tokens of a request is never given what it has no room for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.answer_words import DONT_KNOW, bare_reply
from ..core.errors import ModelError, PromptTooLongError
from ..core.images import Picture
from ..core.question_kind import QuestionKind, joins, question_kind
from ..core.trace import Evidence, ImageRef

Numbered = Sequence[tuple[ImageRef, Picture]]
"""Pictures, each with its number in the user's question."""
_HINT = "Ask about fewer, or use the method codevqa: its program looks at each picture."


@dataclass(frozen=True)
class Reading:
    """An answer, and what it rests on: captions that were read, and what image-text matching says."""

    text: str
    evidence: tuple[Evidence, ...]
    unread: bool = False
    """Whether a yes or no was asked for, and the text is a reply that plainly says neither."""


def read_reply(reply: str, kind: QuestionKind, chances: Sequence[tuple[str, float]] = ()) -> tuple[str, bool]:
    """Returns the answer in a reply, in the words of its kind, and whether it is unread.

    Args:
        reply: what a model said.
        kind: what it was asked for.
        chances: probabilities of "yes" and "no", where there are some: they decide where the words do not.
    """
    if bare_reply(reply).lower().rstrip(".") == DONT_KNOW.lower():
        return DONT_KNOW, kind.kind == "yes_no"
    answer = kind.read(reply)
    if answer is None and chances:
        answer = max(chances, key=lambda pair: pair[1])[0]
    return (bare_reply(reply).lower(), True) if answer is None else (answer, False)


def context_of(model: Any) -> int | None:
    """Returns how many tokens a model has room for; None where it does not tell, or cannot count them."""
    context: int | None = getattr(model, "context", None) if hasattr(model, "count") else None
    return context


async def read_in_parts(
    pictures: Numbered,
    question: str,
    fit: int,
    read: Callable[[Numbered], Awaitable[Reading]],
    *,
    name: str,
    parts: int | None = None,
) -> Reading:
    """Answers a question about more pictures than fit, one part of them after the other.

    Args:
        pictures: all of them.
        question: numbers of parts are summed, yes and no joined where the wording is sure (:func:`joins`).
        fit: how many a part may have, about; one that turns out too large is halved.
        read: answers the question about a part.
        name: the model's, for messages.
        parts: the most parts; None sets no limit.

    Raises:
        PromptTooLongError: the parts' answers could not be joined, or would be too many; nothing was read.
        ModelError: a part has no answer that can be joined, or a model failed.
    """
    how, count = joins(question), len(pictures)
    if fit < 1 or not how or (parts is not None and count > fit * parts):
        raise PromptTooLongError(f"{name} has no room for {count:,} pictures at once: about {fit:,} fit.", hint=_HINT)
    size = -(-count // -(-count // fit))
    waiting = deque(pictures[start : start + size] for start in range(0, count, size))
    readings: list[Reading] = []
    while waiting:
        part = waiting.popleft()
        try:
            readings.append(await read(part))
        except PromptTooLongError:
            if len(part) == 1:
                raise
            waiting.extendleft((part[len(part) // 2 :], part[: len(part) // 2]))
    text = _join_answers([reading.text for reading in readings], question, how)
    return Reading(text, tuple(evidence for reading in readings for evidence in reading.evidence))


def _join_answers(texts: Sequence[str], question: str, how: str) -> str:
    kind = question_kind(question, statements=True)
    answers = [kind.fit(text) for text in texts]
    for place, text in enumerate(answers, 1):
        if not text or kind.misfit(text):
            raise ModelError(f"Part {place} of {len(answers)} was answered {text!r}, which joins no other.", hint=_HINT)
    if how == "sum":
        total = sum((float(text.replace(",", "")) for text in answers), 0.0)
        return str(int(total)) if total.is_integer() else f"{total:g}"
    return "yes" if (any if how == "any" else all)(text == "yes" for text in answers) else "no"
