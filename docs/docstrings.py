"""What the site makes of docstrings: roles, as in ``:meth:`ask```, become code."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):`(?:~[\w.]*\.)?\.?([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites each docstring when it is read, for mkdocstrings."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        """Rewrites the docstring of a module, class, function or attribute."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
