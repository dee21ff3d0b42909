"""One picture on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.answer import ImageRef
from ..core.images import Picture
from .inline import picture_uri

__all__ = ["Shown", "named", "picture_of", "shown_picture"]


@dataclass(frozen=True)
class Shown:
    """One picture on a page; ``uri`` is empty where the picture is not at hand."""

    uri: str
    alt: str
    label: str


def picture_of(ref: ImageRef, pictures: Sequence[Picture]) -> Picture | None:
    """Returns the picture that a reference stands for, or None where it is not at hand."""
    return pictures[ref.index - 1] if 1 <= ref.index <= len(pictures) else None


def named(ref: ImageRef, pictures: Sequence[Picture]) -> str:
    """Returns how a picture is called: its number, and its file name where it has one."""
    picture = picture_of(ref, pictures)
    return f"image {ref.index}, {picture.name}" if picture and picture.name else f"image {ref.index}"


def shown_picture(ref: ImageRef, pictures: Sequence[Picture], size: int) -> Shown:
    """Returns one picture, at most ``size`` pixels a side."""
    picture = picture_of(ref, pictures)
    return Shown(picture_uri(picture, size) if picture else "", named(ref, pictures), f"image {ref.index}")
