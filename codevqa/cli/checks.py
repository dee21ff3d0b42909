"""What is wrong with a command line, told before any model is loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand

from .pictures import STDIN

if TYPE_CHECKING:
    from ..core.answer import Answer
    from ..core.images import Picture
    from ..engine.request import AskOptions
    from .configured import Chosen


NEEDS: Mapping[str, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "ask": {"--evidence": ("--json", "--questions")},
        "run": {"--evidence": ("--json",)},
        "eval": {"--sample-seed": ("--sample",), "--retry-errors": ("--resume",)},
        "lavis": {"--python": ("install",)},
        "report": {"--price-prompt": ("--price-completion",), "--price-completion": ("--price-prompt",)},
    }
)
"""Options by command that do nothing without one of others, or the value of an argument."""


class Command(TyperCommand):
    """A subcommand that refuses options which would do nothing."""

    def invoke(self, ctx: Any) -> Any:
        """Runs it.

        Raises:
            InputError: an option needs another one.
        """
        from ..core.errors import InputError

        typed = [one for one in self.params if one.name and _typed(ctx, one.name) and ctx.params[one.name] is not False]
        given = {
            str(ctx.params[one.name]) if isinstance(one, TyperArgument) else one.opts[0] for one in typed if one.name
        }
        for option, others in NEEDS.get(self.name or "", {}).items():
            if option in given and given.isdisjoint(others):
                raise InputError(f"{option} does nothing without {' or '.join(others)}.", hint="Give both, or neither.")
        return super().invoke(ctx)


def _typed(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def check_command(
    images: Sequence[str] | None,
    question: str | None,
    questions: str | None,
    trace: Path | None,
    method: str,
    shots: int | None,
) -> None:
    """Checks that what ``ask`` is given goes together.

    Raises:
        InputError: it doesn't.
    """
    from ..core.errors import InputError

    if method not in ("codevqa", "pnpvqa"):
        raise InputError(f"No method {method!r}.", hint="There are: codevqa, pnpvqa.")
    if method == "pnpvqa" and shots is not None:
        raise InputError("--shots does nothing with --method pnpvqa.", hint="Use --set query.shots=NUMBER.")
    if questions is not None:
        beside = {"IMAGE": images, "--question": question, "--trace": trace}
        for name, value in beside.items():
            if value:
                raise InputError(f"{name} does not go with --questions.", hint="The file names pictures and questions.")
    elif question is None and STDIN in (images or ()):
        raise InputError("Standard input holds the picture, so you cannot type questions.", hint="Give -q QUESTION.")


def check_question(question: str, choice: Chosen) -> str:
    """Checks a question as the engine will, and returns it as it would be asked.

    Raises:
        QuestionError: it is empty, too long, or no text.
        InputError: the configuration is wrong.
    """
    from ..engine.question_run import checked_question
    from ..presets.configuration import configure

    return checked_question(question, configure(choice.preset, choice.layers).settings)


def declined_at_once(pictures: Sequence[Picture], question: str, options: AskOptions, choice: Chosen) -> Answer | None:
    """Answers a question that the chosen models cannot know anything about, before they are loaded.

    Returns:
        The answer, or None where they are to be asked.

    Raises:
        InputError: the question or a picture cannot be used.
    """
    from ..engine.question_run import declined
    from ..engine.request import ask_request
    from ..presets.configuration import configure

    return declined(configure(choice.preset, choice.layers), ask_request(pictures, question, options))
