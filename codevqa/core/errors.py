"""Everything that can go wrong, as one tree below :class:`CodeVQAError`.

A failure that is part of a result travels as an :class:`ErrorRecord`, plain data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

_LONG = re.compile(r"\S{400,}")
"""A word that would push the rest of a message out of sight: a name of thousands of letters."""
_ADVERT = re.compile(r"\n\s*For further information visit \S+")
"""Below each of pydantic's errors."""


@dataclass(frozen=True)
class ErrorRecord:
    """A failure as plain data, kept beside the answer it spoilt."""

    type: str
    """Name of the exception class, e.g. ``ProgramTypeError``."""
    message: str
    """One line: what is wrong."""
    line: int | None = None
    """Program line it happened on, counted from 1, where there is one."""


class CodeVQAError(Exception):
    """Root of the tree. ``str(error)`` is one line: what is wrong and what to do."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        shown = f"{message} {hint}".strip().replace("\n", " ")
        super().__init__(_LONG.sub(lambda word: f"{word[0][:100]}...{word[0][-100:]}", shown))
        self.message = message
        self.hint = hint

    def record(self) -> ErrorRecord:
        """Returns the failure as plain data."""
        return ErrorRecord(type(self).__name__, str(self), getattr(self, "line", None))


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns "Did you mean ...?" with the known name that was probably meant; empty where none is like it."""
    from difflib import get_close_matches

    names = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), names, n=1)
    return f"Did you mean {names[matches[0]]}?" if matches else ""


def record(error: BaseException) -> ErrorRecord:
    """Returns any exception as plain data: ours, or one that a primitive of the user's raised."""
    if isinstance(error, CodeVQAError):
        return error.record()
    try:
        message = " ".join(_ADVERT.sub("", str(error)).split())
    except BaseException as other:  # noqa: BLE001 - its text is code of the user's, too
        message = f"(its text raised {type(other).__name__})"
    return ErrorRecord(type(error).__name__, message)


class InputError(CodeVQAError):
    """What the user gave cannot be used."""


class ImageError(InputError):
    """A picture is missing, unreadable, too large or animated."""


class QuestionError(InputError):
    """A question is empty or too long."""


class SetupError(CodeVQAError):
    """Something this machine lacks."""


class UnknownNameError(SetupError):
    """No preset, prompt set or model back end of that name."""

    @classmethod
    def of(cls, what: str, name: str, known: Iterable[str], more: str = "") -> UnknownNameError:
        """Returns the error for a name that is not among those known; ``more`` follows their list."""
        names = list(known)
        hint = f"{nearest(name, names)} There are: {', '.join(names)}{more}."
        return cls(f"No {what} {name!r}.", hint=hint.strip())


class ModelNotFoundError(SetupError):
    """A checkpoint is not on this machine and cannot be fetched."""


class EngineClosedError(CodeVQAError):
    """The engine was closed before it answered, or before it was asked."""

    def __init__(self, message: str = "The engine is closed. Make another to ask more.") -> None:
        super().__init__(message)


class InternalError(CodeVQAError):
    """A mistake of this package's own; what was raised is its ``__cause__``."""


class ModelError(CodeVQAError):
    """A model failed while it was asked."""

    def __init__(self, message: str, *, hint: str = "", retryable: bool = False, wait: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retryable = retryable
        self.wait = wait
        """Seconds that a server asks to wait."""

    def after(self, program: ProgramError) -> Self:
        """Returns a copy that says that this failed in the place of a program, and why that had failed.

        It is a copy because questions that shared a batch hold the same error.
        """
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        cause = program.record()
        copied.message = f"The fallback failed: {self} Before that, the program failed: {cause.type}: {cause.message}"
        copied.hint = ""
        copied.args = (copied.message,)
        return copied


class PromptTooLongError(ModelError):
    """A prompt does not fit into the model's context: an answer that this model cannot give, whenever it is asked."""


class NoEyesError(ModelError):
    """A model that reads text alone was shown a picture."""


class PictureLimitError(ModelError):
    """A vision-language model would be shown more pictures at once than its chart saw answered."""


class EmptyReadingError(ModelError):
    """The reading model was asked, and said nothing however often."""


class ServerError(ModelError):
    """A model server is down, refuses whatever it is asked, or does not answer in time."""


class ReplayMissError(ModelError):
    """A replay, which has no models, needs a call that was not recorded."""


class ProgramError(CodeVQAError):
    """A program failed. ``line`` counts from 1; None where it cannot be told."""

    def __init__(self, message: str, *, line: int | None = None, hint: str = "") -> None:
        where = f"line {line}: " if line is not None else ""
        super().__init__(f"{where}{message}", hint=hint)
        self.message = message
        self.line = line
        self.answer: Any = None
        """What was done until then, where :meth:`codevqa.CodeVQA.run` raises it: its trace holds the calls that ran."""
        self.printed = ""
        """What the program had printed by then."""
        self.seconds = 0.0
        """How long it had been at work, without waiting."""


class ProgramSyntaxError(ProgramError):
    """The program does not parse."""


class ProgramTypeError(ProgramError):
    """The static check found an unknown name or a wrong argument."""


class ProgramRuntimeError(ProgramError):
    """The program raised while running."""


class ProgramLimitError(ProgramError):
    """The program ran past its time, memory, calls or output."""


class ProgramAnswerError(ProgramError):
    """The program ended without a usable ``answer``."""


class UnsetAnswerError(ProgramAnswerError):
    """The program ended without setting ``answer``."""
