"""The primitives of the paper (Subramanian et al., "Modular Visual Question Answering via Code Generation")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np

from ..core.trace import Evidence
from ..models.protocols import Match, MatchRequest, Models, SimilarityRequest, grounds
from .context import CallContext
from .detection import DETECTION, boxes_of, centre, on_grid
from .judging import closest
from .kinds import Image
from .parts import Reading
from .sets import SETS
from .signature import GRID, PrimitiveSet, primitive


@primitive
async def open_image(context: CallContext, path: str) -> Image:
    """Opens the image at the path and returns it as an Image object.

    The path is a name, ``Image7.jpg``, never a file. It stands for the picture of the question. The number picks one
    of several pictures.
    """
    return find_image(context.images, path)


@primitive
async def open_images(context: CallContext, path: str) -> list[Image]:
    """Opens the images in the set at the path and returns them as a list of Image objects.

    The path is a name, ``ImageSet7.jpg``, never a file. It stands for all pictures of the question, in order.
    """
    return find_images(context.images, path)


@primitive(ahead=True)
async def query(context: CallContext, img: Annotated[Image | list[Image], Image], question: str) -> str:
    """Answers the question about the image in a word or two.

    A vision-language model answers, if there is one. Otherwise few-shot Plug-and-Play VQA answers: BLIP image-text
    matching with GradCAM shows where to look, captions are sampled there, and the language model reads them. A list of
    images is one set. The answer is in lower case, and empty if the model gives none. If a yes/no question gets neither
    yes nor no, the call fails.
    """
    if not question.strip():
        raise ValueError("query() needs a question, not an empty string")
    images = img if isinstance(img, list) else [img]
    if not images:
        raise ValueError("query() needs at least one image")
    correction = None if isinstance(img, list) else context.find_correction(img, question)
    reading = correction or await (context.eyes or context.pnpvqa).answer(
        [(image.ref, image.picture) for image in images],
        question,
        "set" if isinstance(img, list) else "image",
        context.form,
        about=context.question,
        witness=True,
    )
    context.evidence.extend(reading.evidence)
    return _reading_answer(reading, "query")


@primitive(ahead=True)
async def get_pos(context: CallContext, img: Image, object: str) -> tuple[float, float]:
    """Returns the position (x, y) of the object in the image.

    The centre of the patch with the greatest GradCAM relevance, averaged over the tokens of the phrase, on a 24x24
    grid: x from LEFT to RIGHT, y from BOTTOM up to TOP. If no model points, the centre of a detector's best box. The
    call fails if there is no box.
    """
    if not context.services.grounds:
        boxes = await boxes_of(context, "get_pos", img, object, most=1, centred=True)
        if not boxes:
            raise ValueError(f"get_pos() found no {object!r} in {img.ref}")
        return centre(on_grid(boxes[0], img))
    if not object.strip():
        raise ValueError("get_pos() needs the name of an object, not an empty string")
    request = MatchRequest(img.picture, object)
    if context.settings.position_text == "question":
        request = MatchRequest(img.picture, context.pnpvqa.looked_for(context.question, context.form), object)
    match = await context.services.match(request)
    position = peak(match, context.settings.position_at)
    context.record(
        Evidence(
            kind="gradcam",
            images=(img.ref,),
            text=object,
            relevance=(tuple(map(tuple, match.relevance.tolist())),),
            scores=(match.logit,),
            position=position,
        )
    )
    return position


@primitive(ahead=True)
async def find_matching_image(context: CallContext, images: list[Image], phrase: str) -> Image:
    """Returns the image that matches the phrase best.

    The image with the highest BLIP image-text contrastive (ITC) score for "a picture of " and the phrase. With
    ``sets.witness``, image-text matching picks among the 20 highest of a large set.
    """
    if not images:
        raise ValueError("find_matching_image() needs at least one image")
    if not phrase.strip():
        raise ValueError("find_matching_image() needs a phrase, not an empty string")
    text = f"a picture of {phrase}"
    scores = await context.services.similarity.many([SimilarityRequest(image.picture, text) for image in images])
    context.record(Evidence(kind="itc", images=tuple(image.ref for image in images), text=text, scores=tuple(scores)))
    sets = context.settings.sets
    if sets.witness and len(images) > sets.large and context.services.grounds:
        return await closest(context, images, phrase, scores)
    return images[int(np.argmax(scores))]


@primitive(ahead=True)
async def visual_query(context: CallContext, img: Image, question: str) -> str:
    """Answers the question about the image in a word or two, from what can be seen.

    The same as ``query``, for prompts that also name ``knowledge_query``.
    """
    answer: str = await query.function(context, img, question)
    return answer


@primitive(ahead=True)
async def knowledge_query(context: CallContext, question: str) -> str:
    """Answers the question in a word or two from general knowledge, without looking at an image.

    The language model reads the knowledge examples of the programs it was shown, and answers in lower case. It sees no
    picture, so the question must name what it is about.
    """
    if not question.strip():
        raise ValueError("knowledge_query() needs a question, not an empty string")
    reading = await context.pnpvqa.recall(question, context.knowledge)
    context.evidence.extend(reading.evidence)
    return _reading_answer(reading, "knowledge_query")


VISUAL = PrimitiveSet([open_image, open_images, query, get_pos, find_matching_image])
"""The vocabulary of the paper. Of it, an engine offers what its models serve."""
KNOWLEDGE = PrimitiveSet([visual_query, knowledge_query])
"""Offered where a prompt set names them, as OK-VQA's does: what is there, and what is known about it."""
BUILT_IN = VISUAL.extend([*DETECTION, *KNOWLEDGE, *(member for member in SETS if member.name not in DETECTION.names)])
"""All of them."""


def servable_names(models: Models) -> frozenset[str]:
    """Returns the names of the built-in primitives that models can serve: nothing else is offered to programs."""
    matcher, detects = models.matcher, models.detector is not None
    answers = models.eyes is not None or models.reads
    return served_by(answers=answers, compares=matcher is not None, points=grounds(matcher), detects=detects)


def served_by(*, answers: bool, compares: bool, points: bool, detects: bool) -> frozenset[str]:
    """Returns the same by what models can do: answer, compare pictures with texts, point, find objects."""
    needs = {
        "query": answers,
        "visual_query": answers,
        "get_pos": detects or points,
        "find_matching_image": compares,
        **dict.fromkeys(SETS.names, answers),
        **dict.fromkeys(DETECTION.names, detects),
    }
    return frozenset(name for name in BUILT_IN.names if needs.get(name, True))


def find_image(images: Sequence[Image], path: str) -> Image:
    """Returns the picture of the question that a name stands for.

    Raises:
        ValueError: the name is of another kind.
        LookupError: there are not as many pictures.
    """
    number = _name_number(path, "Image")
    if len(images) == 1:
        return images[0]  # in a prompt the number only counts the examples
    if (image := next((each for each in images if each.index == number), None)) is None:
        raise LookupError(f"there is no image {number}: the question has {len(images)} images")
    return image


def find_images(images: Sequence[Image], path: str) -> list[Image]:
    """Returns the pictures of the question, where the name stands for a set.

    Raises:
        ValueError: the name is of another kind.
    """
    _name_number(path, "ImageSet")
    return list(images)


def peak(match: Match, at: Literal["centre", "corner"] = "centre") -> tuple[float, float]:
    """Returns the most relevant patch on the 24x24 grid, y upwards: its centre, or its upper left corner."""
    rows, columns = match.relevance.shape
    row, column = divmod(int(np.argmax(match.relevance)), columns)
    inside = 0.5 if at == "centre" else 0.0
    return (column + inside) * GRID / columns, GRID - (row + inside) * GRID / rows


def _reading_answer(reading: Reading, name: str) -> str:
    """Returns the answer of a reading.

    Raises:
        ValueError: the model says neither yes nor no: a program would take anything but "yes" for no.
    """
    if reading.unread:
        raise ValueError(f"{name}() asked for yes or no, and the model said neither: {reading.text[:100]!r}")
    return reading.text


def _name_number(path: str, word: str) -> int:
    match = re.fullmatch(rf"{word}(\d{{1,6}})(?:\.(?:jpg|jpeg|png))?", path)
    if match is None:
        raise ValueError(f"there is no image {path[:60]!r}: use a name like '{word}1.jpg'")
    return int(match.group(1))
