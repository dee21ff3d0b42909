"""CodeVQA: visual question answering by programs that a language model writes and a sandbox runs.

    >>> from codevqa import CodeVQA
    >>> with CodeVQA.from_preset("mini") as vqa:
    ...     answer = vqa.ask("picture.png", "Is the star to the left of the circle?")
    ...     print(answer, answer.program.source)

Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batching.call_cache import Memory
    from .collections.collection import Collection
    from .core.answer import Answer
    from .core.errors import CodeVQAError
    from .core.settings import Limits, QuerySettings, Settings, WriterSettings
    from .core.table import Column, Table
    from .core.trace import Call, Evidence, Program, Trace
    from .engine.codevqa import CodeVQA
    from .engine.many import Question
    from .engine.sets import Groups
    from .engine.tables import Budget
    from .engine.watch import Watch
    from .models.protocols import Models
    from .primitives import Image, primitive
    from .writing.writer import Writer

__version__ = "0.1.0"

_HOMES = {
    "Answer": "core.answer",
    "Budget": "engine.tables",
    "Call": "core.trace",
    "CodeVQA": "engine.codevqa",
    "CodeVQAError": "core.errors",
    "Collection": "collections.collection",
    "Column": "core.table",
    "Evidence": "core.trace",
    "Groups": "engine.sets",
    "Image": "primitives",
    "Limits": "core.settings",
    "Memory": "batching.call_cache",
    "Models": "models.protocols",
    "Program": "core.trace",
    "QuerySettings": "core.settings",
    "Question": "engine.many",
    "Settings": "core.settings",
    "Table": "core.table",
    "Trace": "core.trace",
    "Watch": "engine.watch",
    "Writer": "writing.writer",
    "WriterSettings": "core.settings",
    "primitive": "primitives",
}

__all__ = [
    "Answer",
    "Budget",
    "Call",
    "CodeVQA",
    "CodeVQAError",
    "Collection",
    "Column",
    "Evidence",
    "Groups",
    "Image",
    "Limits",
    "Memory",
    "Models",
    "Program",
    "QuerySettings",
    "Question",
    "Settings",
    "Table",
    "Trace",
    "Watch",
    "Writer",
    "WriterSettings",
    "primitive",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
