"""What a user wants of an engine, and the options that every way of asking takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import lexists  # unlike Path.exists(), it is False of what no path can be
from typing import Any, Literal, TypeAlias, TypedDict

from pydantic import InstanceOf

from ..batching.call_cache import Memory
from ..collections.collection import Pictures, freeze_pictures
from ..core.errors import ImageError, InputError, SetupError, nearest
from ..core.images import FrozenSource, Picture, load_pictures, shown_path
from ..core.settings import check_value
from ..core.trace import Form, Method, Program
from ..primitives.context import Corrections

Errors: TypeAlias = Literal["raise", "return"]
"""What becomes of a question that cannot be answered: raised, or an answer with its ``error`` and no text."""


class RunOptions(TypedDict, total=False):
    """Options of :meth:`codevqa.CodeVQA.run`."""

    form: Form | None
    """``image`` or ``set``; None decides by the number of images, or takes ``set`` where the program was written for
    one."""
    seed: int | None
    """Seed of patch and caption sampling for this question alone; None takes the settings'."""
    memory: Memory | None
    """Where finished model calls are looked up and kept, in place of the engine's own: nothing is taken over from
    questions with another memory."""
    corrections: Corrections
    """What people said of pictures: yes or no by a picture's key and a question. ``query`` and ``select`` return it in
    place of what a model would say, and the trace has it as evidence of the kind ``corrected``."""


class AskOptions(RunOptions, total=False):
    """Options of :meth:`codevqa.CodeVQA.ask`."""

    method: Method
    """``codevqa``; or a baseline without a program: ``pnpvqa`` reads captions, ``direct`` asks a vision-language model
    once."""
    shots: int | None
    """In-context examples that the language model is shown when it writes the program, from 0 to all there are; None
    takes the settings' number, or the prompt set's."""


@dataclass(frozen=True)
class Request:
    """A question to answer, or a program of the user's to run."""

    images: tuple[FrozenSource, ...]
    """The pictures, held: nothing that the user does later changes them."""
    question: str
    form: Form | None = None
    method: Method = "codevqa"
    seed: int | None = None
    shots: int | None = None
    memory: Memory | None = None
    corrections: Corrections = field(default_factory=dict)
    program: Program | None = None
    """A program to run; None has one written."""
    many: bool = False
    """Whether its picture is one of many that are asked the same: then :attr:`.SetSettings.witness` holds for it."""
    own: bool = True
    """Whether it is the user's own program, which is run whatever the models know."""

    @property
    def likely_form(self) -> Form:
        """Its form, as far as its pictures are known before they are read."""
        return self.form or ("image" if len(self.images) == 1 else "set")


_OPTIONS: dict[str, Any] = {
    "form": Form | None,
    "method": Method,
    "seed": int | None,
    "shots": int | None,
    "memory": InstanceOf[Memory] | None,
    "corrections": Corrections,
    "program": InstanceOf[Program] | None,
}


_NEEDS: Mapping[Method, tuple[str, str]] = {
    "direct": (
        "a vision-language model",
        "Name one: --preset api --model NAME, with a server of your own such as Ollama.",
    ),
    "pnpvqa": (
        "a captioner, and a matcher that tells where it looks",
        "Take the method direct, or a preset with BLIP.",
    ),
}
"""What models a baseline needs, and what to do where they are missing; programs can do with any."""


def read_pictures(request: Request) -> tuple[Picture, ...]:
    """Reads the pictures of a request.

    Raises:
        ImageError: one cannot be read, or stands where the text belongs.
    """
    text = request.program.source if request.program and request.own else request.question
    for source in request.images[:1]:
        if isinstance(source, str | Program) and not lexists(str(source)) and lexists(text):
            hint = f"Pictures come first: give {shown_path(text)} before the text."
            raise ImageError(f"No picture at {shown_path(str(source))}.", hint=hint)
    return load_pictures(request.images)


def check_options(request: Request) -> None:
    """Checks what a type checker would, for callers that have none.

    Raises:
        InputError: an option has a value of another kind.
    """
    for name, kind in _OPTIONS.items():
        check_value(name, getattr(request, name), kind)


def check_names(caller: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Checks names of options as Python would, and names the nearest.

    Raises:
        InputError: there is no such option.
    """
    names = list(known)
    for name in options:
        if name not in names:
            hint = nearest(name, names) or f"There are: {', '.join(names)}."
            raise InputError(f"{caller} has no option {name!r}.", hint=hint)


def check_method(method: Method, able: Sequence[Method]) -> None:
    """Checks that a method is among those that models can do.

    Raises:
        SetupError: it is not.
    """
    if method in _NEEDS and method not in able:
        needs, hint = _NEEDS[method]
        raise SetupError(f"The method {method} needs {needs}.", hint=hint)


def ask_request(images: Pictures, question: str, options: AskOptions) -> Request:
    """Returns what is wanted where a question is asked. Call it in the user's thread, which copies the pictures."""
    check_names("ask()", options, AskOptions.__annotations__)
    return Request(freeze_pictures(images), question, **options)


def run_request(images: Pictures, program: object, question: str, options: RunOptions) -> Request:
    """Returns what is wanted where the user brings the program. Call it in the user's thread, as :func:`ask_request`.

    Raises:
        InputError: there is no program.
    """
    check_names("run()", options, RunOptions.__annotations__)
    if isinstance(program, str):
        program = Program(program, question)
    elif not isinstance(program, Program):
        kind = type(program).__name__
        raise InputError(f"A program is a text or a Program, not {kind}.", hint="Pictures come first.")
    request = Request(freeze_pictures(images), question or program.question, program=program, **options)
    return replace(request, form="set") if request.form is None and program.form == "set" else request
