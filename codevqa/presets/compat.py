"""What ``--compat`` sets: how another implementation does what is a choice here, as values under dotted names.

Numbers of the prompt sets (examples, captions, draws) are the paper's already; what is not named here is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..core.errors import UnknownNameError
from .configuration import Layer

RELEASE: Mapping[str, object] = MappingProxyType(
    {
        "matcher.dtype": "float32",
        "captioner.dtype": "float32",
        "writer.form": "completion",
        "writer.wording": "release",
        "writer.tell_kind": False,
        "writer.selection": "nearest",
        "writer.retrieval": "words",
        "writer.shots": None,
        "writer.programs": 1,
        "writer.refuse": False,
        "writer.max_tokens": 512,
        "writer.repairs": 0,
        "writer.fit": False,
        "query.form": "completion",
        "query.wording": "release",
        "query.max_tokens": 20,
        "query.captions": None,
        "query.max_draws": None,
        "query.patches": 20,
        "query.attempts": 4,
        "query.selection": "question",
        "query.shots": None,
        "query.fit": False,
        "query.witness": False,
        "query.stated": False,
        "position_text": "question",
        "position_at": "corner",
        "answers": "release",
        "agree": 1,
        "abstain_below": 0.0,
    }
)
"""The paper's released code."""


def compat_layer(name: str) -> Layer:
    """Returns the layer that does as another implementation; options that a back end doesn't have are left out.

    Raises:
        UnknownNameError: there is none of that name.
    """
    if name != "release":
        raise UnknownNameError(f"--compat has no {name!r}.", hint="There is: release.")
    return Layer("--compat release", dict(RELEASE), optional=True)
