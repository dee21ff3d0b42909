"""What goes together when a report reckons how sure its figures are, where a reader wants another choice than ours."""

from __future__ import annotations

from dataclasses import replace

from ...core.errors import InputError
from ..task import EvalImage, Example, PictureFile

__all__ = ["WAYS", "clustered"]

WAYS = ("question", "pictures", "text")
"""Each question by itself; those about the same pictures; those with the same words."""


def clustered(example: Example, by: str) -> Example:
    """Returns an example in another cluster.

    Args:
        example: as it was kept.
        by: one of ``WAYS``, or a group of figures (``images``) or field of the record (``writer``) that every example
            has; empty keeps the data set's own.

    Raises:
        InputError: the example has no such thing.
    """
    if not by:
        return example
    found = {
        **{name: str(value) for name, value in example.record.items() if isinstance(value, str | int)},
        **example.groups,
        "question": example.id,
        "pictures": " ".join(sorted(set(map(_file, example.images)))),
        "text": example.question,
    }
    if by not in found:
        known = ", ".join([*WAYS, *sorted(set(found) - set(WAYS))])
        raise InputError(f"Question {example.id} has no {by!r} to cluster by.", hint=f"It has: {known}.")
    return replace(example, cluster=found[by])


def _file(image: EvalImage) -> str:
    """A picture, whatever part of it is asked about."""
    return str(image.path / image.member) if isinstance(image, PictureFile) else image.name
