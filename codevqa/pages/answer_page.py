"""Answers as pages: the pictures are read again, :mod:`codevqa.pages` draws, and a page is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ..collections.collection import Pictures, freeze_pictures
from ..core.answer import Answer
from ..core.errors import CodeVQAError, InputError
from ..core.images import Picture, load_pictures
from ..core.table import written_whole
from .render import answer_fragment, trace_page
from .words import images_of, page_name


def save(answer: Answer, path: str | os.PathLike[str], images: Pictures | None = None) -> Path:
    """Writes an answer's page, first beside its place and then into it. See :meth:`codevqa.Answer.save_html`."""
    place, pictures = Path(path), pictures_of(answer, images)
    if place.is_dir():
        place /= page_name(answer.question, pictures)
    page = trace_page(answer, pictures)
    with written_whole(place, "Give another file.") as file:
        file.write(page)
    return place


def fragment(answer: Answer, *, alone: bool = True) -> str:
    """Returns what a notebook shows of an answer; ``alone`` is False on a page that has the styles."""
    return with_pictures(answer, lambda pictures: answer_fragment(answer, pictures, alone=alone))


def with_pictures(answer: Answer, draw: Callable[[tuple[Picture, ...]], str]) -> str:
    """Returns what is drawn with the pictures of an answer; without any where they cannot be read any more."""
    try:
        return draw(pictures_of(answer))
    except CodeVQAError:
        return draw(())


def pictures_of(answer: Answer, images: Pictures | None = None) -> tuple[Picture, ...]:
    """Reads the pictures of an answer.

    Args:
        answer: the answer.
        images: its pictures; None takes those it was asked about.

    Raises:
        InputError: there are none, or fewer than it speaks of.
        ImageError: one cannot be read.
    """
    if images is None and not answer.sources:
        raise InputError(
            "This answer has no pictures with it: they are not part of its JSON.", hint="Give them as images=[...]."
        )
    pictures = load_pictures(answer.sources if images is None else freeze_pictures(images))
    needed = max(images_of(answer), default=0)
    if needed > len(pictures):
        raise InputError(
            f"This answer is about {needed} images or more, and {len(pictures)} were given.",
            hint="Give all of them, in the order of the question.",
        )
    return pictures
