"""Modules by the names they had before they moved into rooms: an import of one still works, with a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import MappingProxyType, ModuleType

__all__ = ["MOVED", "find_moved_modules"]

MOVED = MappingProxyType(
    {
        "codevqa.errors": ("codevqa.core.errors",),
        "codevqa.images": ("codevqa.core.images",),
        "codevqa.mini.export": ("codevqa.miniworld.export",),
        "codevqa.models.lavis_names": ("codevqa.models.blip.lavis_names",),
        "codevqa.models.presets": ("codevqa.presets.presets",),
        "codevqa.models.registry": ("codevqa.presets.assembly",),
        "codevqa.models.transformers_lm": ("codevqa.models.causal_lm",),
        "codevqa.program": ("codevqa.core.answer", "codevqa.core.trace"),
        "codevqa.retrieval": ("codevqa.models.retrieval",),
        "codevqa.settings": ("codevqa.core.settings",),
        "codevqa.watching": ("codevqa.core.events", "codevqa.engine.watch"),
        "codevqa.writer": ("codevqa.writing.writer", "codevqa.core.text"),
    }
)
"""New names by old name, for what users import beside the names of the package itself."""


class _MovedModules(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        places = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} is now {' and '.join(places)}", DeprecationWarning, stacklevel=2)
        for place in places:
            names = vars(import_module(place))
            vars(module).update((name, value) for name, value in names.items() if not name.startswith("__"))


def find_moved_modules() -> None:
    """Makes the old names importable in this process."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
