"""What is wrong with a command line, told before any model is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .pictures import STDIN

if TYPE_CHECKING:
    from .configured import Chosen


def check_command(
    images: Sequence[str] | None, question: str | None, questions: str | None, trace: Path | None, method: str
) -> None:
    """Checks that what ``ask`` is given goes together.

    Raises:
        InputError: it doesn't.
    """
    from ..core.errors import InputError

    if method not in ("codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    if questions is not None:
        beside = {"IMAGE": images, "--question": question, "--trace": trace}
        for name, value in beside.items():
            if value:
                raise InputError(f"{name} does not go with --questions.", hint="The file names pictures and questions.")
    elif question is None and STDIN in (images or ()):
        raise InputError("Standard input is the picture, and cannot be typed on.", hint="Give -q QUESTION.")


def check_question(question: str, choice: Chosen) -> str:
    """Checks a question as the engine will, and returns it as it would be asked.

    Raises:
        QuestionError: it is empty, too long, or no text.
        InputError: the configuration is wrong.
    """
    from ..engine.question_run import checked_question
    from ..presets.configuration import configure

    return checked_question(question, configure(choice.preset, choice.layers).settings)
