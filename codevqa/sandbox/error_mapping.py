"""Errors of the interpreter as ours."""

from __future__ import annotations

import re
from collections.abc import Callable

import pydantic_monty as monty

from ..core.errors import ProgramError, ProgramLimitError, ProgramRuntimeError, ProgramSyntaxError
from ..core.settings import Limits

_UNSUPPORTED = "The monty syntax parser does not yet support "
_ADVICE = {
    "class inheritance": "Write functions, and raise ValueError for an error of your own.",
    "decorators": "Write plain functions and methods.",
    "yield": "Append to a list and return it.",
    "Wildcard imports": "Import each name that you use.",
    "callable replacement": "Join what re.split returns, or use str.replace.",
    "unhashable type: 'Image'": "Keep each picture's place instead: for i, im in enumerate(images).",
}
"""What to write instead, by words of the interpreter's message."""
_SUSPENDED_IN_BUILTIN = "cannot suspend in this synchronous context"


def crash(error: monty.MontyCrashedError) -> ProgramError:
    """Returns the error of a program whose worker is gone."""
    if error.timed_out:
        return ProgramLimitError("the program did not react to its time limit and was ended.")
    return ProgramRuntimeError("the process running the program died.", hint="Run it again.")


def explain(
    error: monty.MontyError, limits: Limits, source: str, filename: str, line_of: Callable[[int, int], int]
) -> ProgramError:
    """Maps an error of the interpreter to ours.

    Args:
        error: the interpreter's.
        limits: what the program may use.
        source: the program.
        filename: by which the interpreter knows it.
        line_of: gives the line of the program for the line and the column that the interpreter names.
    """
    if not isinstance(error, monty.MontySyntaxError | monty.MontyRuntimeError):
        return ProgramRuntimeError(bounded_line(str(error)))
    lines = [line_of(frame.line, frame.column - 1) for frame in error.traceback() if frame.filename == filename]
    line = lines[-1] if lines and lines[-1] > 0 else None
    text = bounded_line(error.display("msg"))
    if isinstance(error, monty.MontySyntaxError):
        return ProgramSyntaxError(text, line=line)
    inner = error.exception()
    if isinstance(inner, NotImplementedError) and text.startswith(_UNSUPPORTED):
        what = text.removeprefix(_UNSUPPORTED)
        return ProgramSyntaxError(f"programs cannot use {what}.", line=line, hint=_advice(what))
    # A program may raise what looks like a limit, but no limit is reached by raising.
    raised = line is not None and re.search(r"\braise\b", "".join(source.split("\n")[line - 1 : line])) is not None
    exceeded = "" if raised else _limit_text(inner, text, limits)
    if exceeded:
        return ProgramLimitError(exceeded, line=line)
    if isinstance(inner, NotImplementedError) and _SUSPENDED_IN_BUILTIN in text:
        hint = "Call it before, or use sorted(..., key=...) or a comprehension."
        return ProgramRuntimeError("a primitive cannot be called from inside this builtin.", line=line, hint=hint)
    return ProgramRuntimeError(bounded_line(error.display("type-msg")), line=line, hint=_advice(text))


def _advice(text: str) -> str:
    """Says what to write instead of what the interpreter cannot do; empty where it is no such thing."""
    return next((hint for words, hint in _ADVICE.items() if words in text), "")


def _limit_text(inner: BaseException, text: str, limits: Limits) -> str:
    """Says which limit an error of the interpreter stands for; empty where it stands for none."""
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        return f"the program computed longer than {limits.seconds:g} seconds."
    if isinstance(inner, MemoryError) and "memory limit" in text:
        if text.endswith(f"> {limits.output_bytes} bytes"):
            return f"the program printed more than {limits.output_bytes:,} bytes."
        return f"the program used more than {limits.memory_bytes:,} bytes of memory."
    if isinstance(inner, RecursionError):
        return f"the program called itself more than {limits.recursion} deep."
    if isinstance(inner, RuntimeError) and text.startswith("suspension limit"):
        return "the program asked its host too often."
    return ""


def bounded_line(text: str) -> str:
    """Returns a text in one line of bounded length."""
    text = " ".join(text.split())
    return text if len(text) <= 500 else text[:497] + "..."
