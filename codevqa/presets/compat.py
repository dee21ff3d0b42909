"""What ``--compat`` sets: how another implementation does what is a choice here, as values under dotted names."""

from __future__ import annotations

from ..core.errors import UnknownNameError
from .configuration import Layer
from .published import RELEASE


def compat_layer(name: str) -> Layer:
    """Returns the layer that does as another implementation; options that a back end doesn't have are left out.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name != "release":
        raise UnknownNameError(f"--compat has no {name!r}.", hint="There is: release.")
    return Layer("--compat release", dict(RELEASE), optional=True)
