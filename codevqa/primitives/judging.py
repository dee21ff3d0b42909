"""Asks each of many pictures the same thing, a chunk at a time, and records what came of each in few pieces."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from ..core.errors import ImageError
from ..core.loop_thread import together
from ..core.question_kind import question_kind
from ..core.selection import chance_of_yes
from ..core.trace import Evidence
from ..models.protocols import MatchRequest, SimilarityRequest
from .context import CallContext
from .kinds import Image
from .parts import Reading
from .witness import as_question, describe_question, phrase_of

CHUNK = 64
"""Pictures asked at once."""
CLOSEST = 20
"""Pictures of a large set that image-text matching compares, best by contrastive score."""

Result = TypeVar("Result")


@dataclass
class PictureReadings:
    """What became of each picture."""

    readings: list[tuple[Image, Reading]] = field(default_factory=list)
    unread: list[Image] = field(default_factory=list)
    """Those whose file was gone or had changed, those outside of what the models know, and those of which a reply says
    neither yes nor no."""
    left: list[Image] = field(default_factory=list)
    """Those that were not reached in the budget."""

    def record(self, context: CallContext, question: str) -> None:
        """Records the pictures that have no answer."""
        for kind, images in (("unread", self.unread), ("left", self.left)):
            if images:
                context.record(Evidence(kind, tuple(image.ref for image in images), question))


async def ask_each(context: CallContext, images: Sequence[Image], question: str) -> PictureReadings:
    """Asks each picture a question as ``query`` does; yes/no questions by image-text matching first, where that may.

    Raises:
        ModelError: a model failed.
    """
    asked = PictureReadings()
    seconds = context.settings.sets.seconds
    ends = math.inf if seconds is None else time.monotonic() + seconds
    for first in range(0, len(images), CHUNK):
        if first and time.monotonic() > ends:
            asked.left += images[first:]
            break
        chunk = images[first : first + CHUNK]
        for image, reading in zip(
            chunk, await each(_ask_image(context, picture, question) for picture in chunk), strict=True
        ):
            if isinstance(reading, ImageError) or reading.unread:
                asked.unread.append(image)
            else:
                asked.readings.append((image, reading))
    return asked


async def _ask_image(context: CallContext, image: Image, question: str) -> Reading:
    if correction := context.find_correction(image, question):
        return correction
    if image.index in context.outside:
        return Reading("", (), unread=True)
    pictures, judged = [(image.ref, image.picture)], question_kind(question).kind == "yes_no"
    if judged and context.services.grounds:
        sure = await context.pnpvqa.match_descriptions(pictures[0], describe_question(question), maps=False)
        if sure is not None and sure.text:
            return sure
    # Numbers are read first.
    return await (context.eyes or context.pnpvqa).answer(
        pictures, question, "image", context.form, about=context.question, witness=not judged
    )


async def choose_images(context: CallContext, name: str, images: Sequence[Image], text: str) -> list[Image]:
    """Returns the pictures that show what is described, or for which the answer is yes, and records the chance of each.

    Raises:
        ValueError: the text is empty, or no yes or no answers it.
        ModelError: a model failed.
    """
    if not text.strip():
        raise ValueError(f"{name}() needs a question or a description, not an empty string")
    try:
        question = as_question(text)
    except ValueError as error:
        raise ValueError(f"{name}(): {error}") from None
    sets, close, unread = context.settings.sets, images, list[Image]()
    if not sets.exact and sets.rule_out > -1 and context.services.compares:
        close, unread = await _not_ruled_out(context, images, question)
    asked = await ask_each(context, close, question)
    asked.unread += unread
    chances = tuple(chance_of_yes(reading.text, reading.evidence) for _, reading in asked.readings)
    context.record(Evidence("select", tuple(image.ref for image, _ in asked.readings), question, scores=chances))
    asked.record(context, question)
    return [image for image, reading in asked.readings if reading.text == "yes"]


async def compare_phrase(
    context: CallContext, images: Sequence[Image], phrase: str
) -> tuple[str, list[tuple[Image, float]], list[Image]]:
    """Returns what was compared with each picture, its contrastive score, and the pictures that cannot be read."""
    text = f"a picture of {phrase}"
    scores = await each(context.services.similarity(SimilarityRequest(image.picture, text)) for image in images)
    pairs = list(zip(images, scores, strict=True))
    scored = [(image, score) for image, score in pairs if not isinstance(score, ImageError)]
    return text, scored, [image for image, score in pairs if isinstance(score, ImageError)]


async def closest(context: CallContext, images: Sequence[Image], phrase: str, scores: Sequence[float]) -> Image:
    """Returns the picture that fits a phrase best by image-text matching, of those with the best contrastive scores."""
    order = sorted(range(len(images)), key=lambda place: -scores[place])[:CLOSEST]
    best = [images[place] for place in order]
    logits = await context.services.score.many([MatchRequest(image.picture, phrase) for image in best])
    context.record(Evidence("itm", tuple(image.ref for image in best), phrase, scores=tuple(logits)))
    return best[logits.index(max(logits))]


async def each(calls: Iterable[Awaitable[Result]]) -> list[Result | ImageError]:
    """Returns what each call returns, or why its picture cannot be read."""

    async def result_or_error(call: Awaitable[Result]) -> Result | ImageError:
        try:
            return await call
        except ImageError as error:
            return error

    return await together(map(result_or_error, calls))


async def _not_ruled_out(
    context: CallContext, images: Sequence[Image], question: str
) -> tuple[Sequence[Image], list[Image]]:
    """Returns the pictures to look at closely and those that cannot be read, and records the others.

    Only what is to be there rules out. The best of the others are looked at, too: where one of them counts, the score
    does not see what is asked for, such as a relation, and nothing is ruled out.
    """
    wanted = describe_question(question)
    if len(wanted.texts) != 1 or wanted.negated:
        return images, []
    text, scored, unread = await compare_phrase(context, images, phrase_of(question))
    least = context.settings.sets.rule_out
    if out := [(image, score) for image, score in scored if score < least]:
        best = sorted(out, key=lambda pair: -pair[1])[:CLOSEST]
        if any(
            reading.text == "yes"
            for _, reading in (await ask_each(context, [image for image, _ in best], question)).readings
        ):
            return images, []
        refs, low = tuple(image.ref for image, _ in out), tuple(score for _, score in out)
        context.record(Evidence("ruled_out", refs, text, scores=low))
    return [image for image, score in scored if score >= least], unread
