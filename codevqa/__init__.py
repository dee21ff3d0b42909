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
    from .engine import CodeVQA, Question
    from .errors import CodeVQAError
    from .merging import Memory
    from .models.base import Models
    from .primitives import Image, primitive
    from .program import Answer, Call, Evidence, Program, Trace
    from .settings import Limits, QuerySettings, Settings, WriterSettings
    from .watching import Watch
    from .writer import Writer

__version__ = "0.1.0"

_HOMES = {
    "Answer": "program",
    "Call": "program",
    "CodeVQA": "engine",
    "CodeVQAError": "errors",
    "Evidence": "program",
    "Image": "primitives",
    "Limits": "settings",
    "Memory": "merging",
    "Models": "models.base",
    "Program": "program",
    "QuerySettings": "settings",
    "Question": "engine",
    "Settings": "settings",
    "Trace": "program",
    "Watch": "watching",
    "Writer": "writer",
    "WriterSettings": "settings",
    "primitive": "primitives",
}

__all__ = [
    "Answer",
    "Call",
    "CodeVQA",
    "CodeVQAError",
    "Evidence",
    "Image",
    "Limits",
    "Memory",
    "Models",
    "Program",
    "QuerySettings",
    "Question",
    "Settings",
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
