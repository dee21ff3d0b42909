"""What programs can do with many pictures at once: select, group and order them, in full batches."""

from __future__ import annotations

from collections import Counter

from ..core.answer_words import number_in
from ..core.question_kind import question_kind
from ..core.selection import chance_of_yes
from ..core.trace import Evidence
from ..prompts import ProgramExample
from .context import CallContext
from .detection import count
from .judging import PictureReadings, ask_each, choose_images, compare_phrase
from .kinds import Image
from .signature import PrimitiveSet, primitive
from .witness import as_question, phrase_of

_SELECTED = (
    ProgramExample("select-1", "How many of the pictures show a dog?", 'answer = len(select(images, "a dog"))', "set"),
    ProgramExample(
        "select-2",
        "What color is the car in most of the pictures taken at night?",
        'night = select(images, "Is it night?")\nanswer = most_common(night, "What color is the car?")',
        "set",
    ),
)
_COMMON = (
    ProgramExample(
        "most-common-1",
        "What is the most common animal in the pictures?",
        'answer = most_common(images, "What animal is this?")',
        "set",
    ),
)
_SORTED = (
    ProgramExample(
        "sort-by-1",
        "What is the man doing in the picture with the most people?",
        'most = sort_by(images, "How many people are there?")[0]\nanswer = query(most, "What is the man doing?")',
        "set",
    ),
)


@primitive(ahead=True, examples=_SELECTED)
async def select(context: CallContext, images: list[Image], question: str) -> list[Image]:
    """Returns the images for which the answer to the yes/no question is yes, or that show what is described.

    Each image is asked like ``query``, many in one batch. A description is asked as "Is there ...?". With
    ``sets.witness``, image-text matching is asked first. Images that cannot be read are left out, and widen the range.
    """
    return await choose_images(context, "select", images, question)


@primitive(ahead=True, examples=_COMMON)
async def most_common(context: CallContext, images: list[Image], question: str) -> str:
    """Returns the answer to the question that is given for most of the images.

    Each image is asked like ``query``. If answers are equally frequent, the first one counts. Empty answers do not.
    """
    if not question.strip():
        raise ValueError("most_common() needs a question, not an empty string")
    if not images:
        raise ValueError("most_common() needs at least one image")
    asked = await ask_each(context, images, question)
    answers = tuple((reading.text,) for _, reading in asked.readings)
    context.record(Evidence("answers", tuple(image.ref for image, _ in asked.readings), question, captions=answers))
    asked.record(context, question)
    tally = Counter(reading.text for _, reading in asked.readings if reading.text)
    return tally.most_common(1)[0][0] if tally else ""


@primitive(ahead=True, examples=_SORTED)
async def sort_by(context: CallContext, images: list[Image], question: str) -> list[Image]:
    """Returns the images in order: the greatest number, the surest yes or the best match of the phrase comes first.

    A "How many" question sorts by the number, a yes/no question by the chance of yes, and a phrase by the contrastive
    score of "a picture of" it. Images that cannot be read are left out.
    """
    if not question.strip():
        raise ValueError("sort_by() needs a question or a phrase, not an empty string")
    kind = question_kind(question).kind
    if kind not in ("number", "yes_no") and context.services.compares:
        wording, scored, unread = await compare_phrase(context, images, phrase_of(question))
        asked = PictureReadings(unread=unread)
    else:
        wording = question if kind == "number" else as_question(question)
        asked = await ask_each(context, images, wording)
        by_number = kind == "number"
        if by_number:
            numbers = [(image, number_in(reading.text)) for image, reading in asked.readings]
            asked.unread += [image for image, number in numbers if number is None]
            scored = [(image, float(number)) for image, number in numbers if number is not None]
        else:
            scored = [(image, chance_of_yes(reading.text, reading.evidence)) for image, reading in asked.readings]
    scored.sort(key=lambda pair: -pair[1])
    refs, best = tuple(image.ref for image, _ in scored), tuple(score for _, score in scored)
    context.record(Evidence("sorted", refs, wording, scores=best))
    asked.record(context, wording)
    return [image for image, _ in scored]


SETS = PrimitiveSet([select, count, most_common, sort_by])
"""Offered where pictures can be asked; told of where there are many."""
