"""One picture on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.images import Picture
from ..core.trace import ImageRef
from .inline import picture_uri

__all__ = ["PictureView", "picture_name", "picture_of", "picture_view"]


@dataclass(frozen=True)
class PictureView:
    """One picture on a page; ``uri`` is empty where the picture is not at hand."""

    uri: str
    alt: str
    label: str


def picture_of(ref: ImageRef, pictures: Sequence[Picture]) -> Picture | None:
    """Returns the picture that a reference stands for, or None where it is not at hand."""
    return pictures[ref.index - 1] if 1 <= ref.index <= len(pictures) else None


def picture_name(ref: ImageRef, pictures: Sequence[Picture]) -> str:
    """Returns how a picture is called: its number, and its file name where it has one."""
    picture = picture_of(ref, pictures)
    return f"image {ref.index}, {picture.name}" if picture and picture.name else f"image {ref.index}"


def picture_view(ref: ImageRef, pictures: Sequence[Picture], size: int) -> PictureView:
    """Returns one picture, at most ``size`` pixels a side."""
    picture = picture_of(ref, pictures)
    return PictureView(picture_uri(picture, size) if picture else "", picture_name(ref, pictures), f"image {ref.index}")
