"""Asks each of many pictures the same thing, a chunk at a time, and records what came of each in few pieces."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..batching.call_cache import CallCache
from ..core.errors import ImageError
from ..core.question_kind import question_kind
from ..core.selection import chance_of_yes
from ..core.together import together
from ..core.trace import Evidence
from ..models.base import MatchRequest, SimilarityRequest
from .context import CallContext
from .kinds import Image
from .parts import Reading
from .witness import as_question, described, phrase_of

CHUNK = 64
"""Pictures asked at once."""
CLOSEST = 20
"""Pictures of a large set that image-text matching compares, best by contrastive score."""

Request = TypeVar("Request")
Result = TypeVar("Result")


@dataclass
class Asked:
    """What became of each picture."""

    readings: list[tuple[Image, Reading]] = field(default_factory=list)
    unread: list[Image] = field(default_factory=list)
    """Those whose file was gone or had changed."""
    left: list[Image] = field(default_factory=list)
    """Those that were not reached in the budget."""

    def record(self, context: CallContext, question: str) -> None:
        """Records the pictures that have no answer."""
        for kind, images in (("unread", self.unread), ("left", self.left)):
            if images:
                context.record(Evidence(kind, tuple(image.ref for image in images), question))


async def ask_each(context: CallContext, images: Sequence[Image], question: str) -> Asked:
    """Asks each picture a question as ``query`` does; yes/no questions by image-text matching first, where that may.

    Raises:
        ModelError: a model failed.
    """
    asked = Asked()
    seconds = context.settings.sets.seconds
    ends = None if seconds is None else time.monotonic() + seconds
    for first in range(0, len(images), CHUNK):
        if first and ends is not None and time.monotonic() > ends:
            asked.left += images[first:]
            break
        chunk = images[first : first + CHUNK]
        said = [_corrected(context, image, question) for image in chunk]
        matched = iter(
            await _matched(context, [image for image, one in zip(chunk, said, strict=True) if one is None], question)
        )
        sure = [next(matched) if one is None else one for one in said]
        unsure = [image for image, one in zip(chunk, sure, strict=True) if one is None]
        read = iter(await together(_read(context, image, question) for image in unsure))
        for image, one in zip(chunk, sure, strict=True):
            reading = next(read) if one is None else one
            if isinstance(reading, ImageError):
                asked.unread.append(image)
            else:
                asked.readings.append((image, reading))
    return asked


async def chosen(context: CallContext, name: str, images: Sequence[Image], text: str) -> list[Image]:
    """Returns the pictures for which the answer to a yes/no question is yes, and records the chance of each.

    Args:
        context: the call's.
        name: of the primitive, for messages.
        images: the pictures.
        text: the question, or a description.

    Raises:
        ValueError: it is empty, or no yes or no answers it.
        ModelError: a model failed.
    """
    question = _wanted(name, text)
    asked, close = Asked(), list(images)
    sets = context.settings.sets
    if not sets.exact and sets.rule_out > -1 and context.services.compares:
        close = await _not_ruled_out(context, close, question, asked)
    looked = await ask_each(context, close, question)
    asked.unread += looked.unread
    asked.left = looked.left
    refs = tuple(image.ref for image, _ in looked.readings)
    chances = tuple(chance_of_yes(one.text, one.evidence) for _, one in looked.readings)
    context.record(Evidence("select", refs, question, scores=chances))
    asked.record(context, question)
    return [image for image, one in looked.readings if one.text == "yes"]


async def alike(context: CallContext, images: Sequence[Image], phrase: str) -> tuple[str, list[float | ImageError]]:
    """Returns what was compared with each picture, and its contrastive score."""
    text = f"a picture of {phrase}"
    requests = [SimilarityRequest(image.picture, text) for image in images]
    return text, await each(context.services.similarity, requests)


async def closest(context: CallContext, images: Sequence[Image], phrase: str, scores: Sequence[float]) -> Image:
    """Returns the picture that fits a phrase best by image-text matching, of those with the best contrastive scores."""
    order = sorted(range(len(images)), key=lambda place: -scores[place])[:CLOSEST]
    best = [images[place] for place in order]
    logits = await context.services.score.many([MatchRequest(image.picture, phrase) for image in best])
    context.record(Evidence("itm", tuple(image.ref for image in best), phrase, scores=tuple(logits)))
    return best[logits.index(max(logits))]


async def each(model: CallCache[Request, Result], requests: Sequence[Request]) -> list[Result | ImageError]:
    """Returns what a model makes of each request, or why its picture cannot be read."""

    async def alone(request: Request) -> Result | ImageError:
        return await _or_error(lambda: model(request))

    try:
        return list(await model.many(requests))
    except ImageError:
        return await together(alone(request) for request in requests)


async def _matched(context: CallContext, images: Sequence[Image], question: str) -> list[Reading | ImageError | None]:
    """Returns what image-text matching is sure of; None for pictures of which it is not."""
    doubt, asked = context.pnpvqa.doubt, described(question)
    found: list[Reading | ImageError | None] = [None] * len(images)
    if doubt is None or not asked.texts or not _judged(question) or not context.services.grounds:
        return found
    logits: list[tuple[float, ...]] = [()] * len(images)
    open_places = list(range(len(images)))
    for text in asked.texts:
        requests = [MatchRequest(images[place].picture, text) for place in open_places]
        still = []
        scores = await each(context.services.score, requests)
        for place, logit in zip(open_places, scores, strict=True):
            if isinstance(logit, ImageError):
                found[place] = logit
                continue
            logits[place] = (*logits[place], logit)
            if not asked.suffice(logits[place], doubt):
                still.append(place)
        open_places = still
    for place, image in enumerate(images):
        verdict = asked.verdict(logits[place], doubt) if found[place] is None else ""
        if verdict:
            found[place] = Reading(verdict, (Evidence("itm", (image.ref,), question, scores=logits[place]),))
    return found


def _corrected(context: CallContext, image: Image, question: str) -> Reading | None:
    said = context.corrections.get((image.picture.key, question))
    if said is None:
        return None
    told = Evidence("corrected", (image.ref,), question, scores=(float(said),))
    return Reading("yes" if said else "no", (told,))


def _judged(question: str) -> bool:
    """Whether image-text matching is asked first, and what follows needs not ask it again. Numbers are first read."""
    return question_kind(question).kind == "yes_no"


async def _read(context: CallContext, image: Image, question: str) -> Reading | ImageError:
    answering = context.eyes or context.pnpvqa
    pictures, witness = [(image.ref, image.picture)], not _judged(question)
    return await _or_error(
        lambda: answering.answer(pictures, question, "image", context.form, about=context.question, witness=witness)
    )


async def _not_ruled_out(context: CallContext, images: Sequence[Image], question: str, asked: Asked) -> list[Image]:
    """Returns the pictures to look at closely, and records the others. Only what is to be there rules out."""
    wanted = described(question)
    if len(wanted.texts) != 1 or wanted.negated:
        return list(images)
    text, scores = await alike(context, images, phrase_of(question))
    close: list[Image] = []
    out: list[tuple[Image, float]] = []
    for image, score in zip(images, scores, strict=True):
        if isinstance(score, ImageError):
            asked.unread.append(image)
        elif score < context.settings.sets.rule_out:
            out.append((image, score))
        else:
            close.append(image)
    if out:
        refs, low = tuple(image.ref for image, _ in out), tuple(score for _, score in out)
        context.record(Evidence("ruled_out", refs, text, scores=low))
    return close


def _wanted(name: str, text: str) -> str:
    if not text.strip():
        raise ValueError(f"{name}() needs a question or a description, not an empty string")
    try:
        return as_question(text)
    except ValueError as error:
        raise ValueError(f"{name}(): {error}") from None


async def _or_error(call: Callable[[], Awaitable[Result]]) -> Result | ImageError:
    try:
        return await call()
    except ImageError as error:
        return error
