"""The vocabulary of programs: one typed Python function per primitive is the one source for everything else.

The signature and the docstring of a primitive give the API reference in prompts, the stubs of the static check, the
validation of arguments and the documentation page::

    @primitive
    async def query(context: CallContext, img: Image, question: str) -> str:
        \"\"\"Answers a question about the picture in a word or two.\"\"\"

A first parameter named ``context`` is given the call's context and is not part of what programs see.
"""

from __future__ import annotations

import asyncio
import builtins
import functools
import inspect
import keyword
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from ..core.errors import UnknownNameError
from ..prompts import ProgramExample
from .kinds import MAX_RESULT_TEXT, MAX_TEXT, Kind, parse_kind, without_numpy

GRID = 24
"""Patches along each side of a picture."""
CONSTANTS: Mapping[str, int] = types.MappingProxyType({"LEFT": 0, "BOTTOM": 0, "RIGHT": GRID, "TOP": GRID})
"""Names of the edges of the patch grid, y upwards, as every program sees them."""

_RESERVED = {"Any", "Counter", "Image", "TypeVar", "answer", "context", "images", "img", "overload", *CONSTANTS}
_OURS = ("_", "vqa_")
"""What the names of the sandbox's own functions and variables begin with."""
_EMPTY: Any = inspect.Parameter.empty


@dataclass(frozen=True)
class Primitive:
    """A function that programs may call; made by :func:`primitive`."""

    name: str
    takes: inspect.Signature
    """The parameters that programs see, each annotated with its :class:`Kind`."""
    result: Kind
    summary: str
    """First line of the docstring."""
    doc: str
    """The whole docstring."""
    function: Callable[..., Any] = field(repr=False)
    """The implementation, sync or async."""
    takes_context: bool = False
    ahead: bool = False
    """Whether it may be called before the program gets there, or in vain: its result depends on its arguments and the
    question alone, and calling it changes nothing."""
    examples: tuple[ProgramExample, ...] = ()
    """Annotated programs that call it, offered beside those of the prompt set."""

    @property
    def signature(self) -> str:
        """The signature as programs see it: ``query(img: Image, question: str) -> str``."""
        return self._declaration(lambda kind: kind.text)

    @property
    def stub(self) -> str:
        """The signature as the static check sees it: with all that parameters take."""
        return self._declaration(lambda kind: kind.stub_text)

    def _declaration(self, text: Callable[[Kind], str]) -> str:
        shown = [
            f"{entry.name}: {text(entry.annotation)}{'' if entry.default is _EMPTY else f' = {entry.default!r}'}"
            for entry in self.takes.parameters.values()
        ]
        return f"{self.name}({', '.join(shown)}) -> {self.result.text}"

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Checks the arguments of a call strictly and returns them by name, defaults filled in.

        Raises:
            TypeError: an argument is missing, unknown, given twice or of the wrong type.
            ValueError: an argument is of the right type and unusable, such as a text too long.
        """
        try:
            values = self.takes.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{self.name}(): {error}") from None
        return {
            name: parameter.annotation.accept(values.get(name, parameter.default), f"{self.name}() {name}", MAX_TEXT)
            for name, parameter in self.takes.parameters.items()
        }

    async def call(self, context: object, arguments: Mapping[str, object]) -> object:
        """Runs the implementation on bound arguments and checks what it returns.

        A plain function runs in a thread, so that it does not hold up the other programs.

        Raises:
            TypeError: the result is not of the declared type.
            RuntimeError: the implementation raised what is no Exception, such as SystemExit, which would end an event
                loop or leave it waiting. Whatever else it raises passes through.
        """
        asker = _current_task()
        first = (context,) if self.takes_context else ()
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(*first, **arguments)
            else:
                result = await asyncio.to_thread(self._call_function, first, arguments)
        except Exception:
            raise
        except BaseException as error:
            task = _current_task()
            # From outside, the call is cancelled or closed. Else the implementation raised the same.
            if isinstance(error, asyncio.CancelledError) and (task is None or task.cancelling()):
                raise
            if isinstance(error, GeneratorExit) and task is not asker:
                raise
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        return self.result.accept(without_numpy(result), f"the result of {self.name}()", MAX_RESULT_TEXT)

    def _call_function(self, first: tuple[object, ...], arguments: Mapping[str, object]) -> Any:
        """Calls the implementation, in a thread."""
        try:
            return self.function(*first, **arguments)
        except StopIteration as error:  # which a future cannot carry
            raise RuntimeError(f"StopIteration: {error}") from error


@overload
def primitive(
    function: Callable[..., Any],
    /,
    *,
    name: str | None = ...,
    ahead: bool = ...,
    examples: Iterable[ProgramExample] = ...,
) -> Primitive: ...


@overload
def primitive(
    *, name: str | None = None, ahead: bool = False, examples: Iterable[ProgramExample] = ()
) -> Callable[[Callable[..., Any]], Primitive]: ...


def primitive(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    ahead: bool = False,
    examples: Iterable[ProgramExample] = (),
) -> Primitive | Callable[[Callable[..., Any]], Primitive]:
    """Makes a primitive of a typed, documented function, sync or async.

    Args:
        function: The function; every parameter and the result annotated with str, int, float, bool, Image,
            list[...], tuple[...] or Optional[...]; a first parameter ``context`` is free.
        name: What programs call it, where that is not the function's own name.
        ahead: Whether it may be called before the program gets there, or in vain, to save time. Only for functions
            whose result depends on their arguments and the question alone, and that change nothing.
        examples: Annotated programs that call it: a language model seldom thinks of what it was never shown.

    Raises:
        TypeError: the signature or an annotation cannot be offered to programs, or the docstring is missing.
        ValueError: the name cannot be used in programs, or an example does not call it.
    """
    if function is None:
        return functools.partial(primitive, name=name, ahead=ahead, examples=tuple(examples))
    examples = tuple(examples)
    name = function.__name__ if name is None else name
    _check_name(name)
    doc = inspect.getdoc(function) or ""
    if not doc.strip():
        raise TypeError(f"Primitive {name} needs a docstring: its first line tells the language model what it does.")
    for example in examples:
        if not isinstance(example, ProgramExample):
            raise TypeError(f"Primitive {name}: {example!r:.60} is no example. Give an Example of codevqa.prompts.")
        if re.search(rf"\b{name}\(", example.program) is None:
            raise ValueError(f"Example {example.id!r} of primitive {name} does not call it.")
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and parameters[0].name == "context"
    visible = parameters[1:] if takes_context else parameters
    hints = _resolve_hints(function, name, [parameter.name for parameter in visible])
    result = hints.get("return", _EMPTY)
    if result is _EMPTY:
        raise TypeError(f"Primitive {name}: annotate what it returns, e.g. -> str.")
    return Primitive(
        name=name,
        takes=inspect.Signature([_check_parameter(parameter, name, hints) for parameter in visible]),
        result=parse_kind(result, f"Primitive {name}, the result"),
        summary=doc.strip().splitlines()[0].strip(),
        doc=doc.strip(),
        function=function,
        takes_context=takes_context,
        ahead=ahead,
        examples=examples,
    )


def _check_parameter(parameter: inspect.Parameter, name: str, hints: Mapping[str, object]) -> inspect.Parameter:
    where = f"Primitive {name}, parameter {parameter.name}"
    if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        raise TypeError(f"{where}: *args, **kwargs, keyword-only and positional-only parameters are not supported.")
    if parameter.name not in hints:
        raise TypeError(f"{where}: annotate it, e.g. {parameter.name}: str.")
    kind = parse_kind(hints[parameter.name], where)
    if parameter.default is not _EMPTY and type(parameter.default) not in (str, int, float, bool, type(None)):
        raise TypeError(f"{where}: a default must be a str, int, float, bool or None.")
    default = parameter.default
    if default is not _EMPTY:
        try:
            default = kind.accept(default, where, MAX_TEXT)
        except (TypeError, ValueError) as error:
            raise TypeError(f"The default does not fit the annotation: {error}.") from None
    return parameter.replace(annotation=kind, default=default)


def _resolve_hints(function: Callable[..., Any], name: str, wanted: list[str]) -> dict[str, object]:
    # The context's class is often imported for type checkers alone, so its annotation is never evaluated.
    raw = inspect.get_annotations(function)
    kept = {key: raw[key] for key in [*wanted, "return"] if key in raw}
    holder: Any = types.SimpleNamespace(__annotations__=kept)
    try:
        # An annotation None resolves to NoneType, which no kind accepts.
        return typing.get_type_hints(holder, globalns=inspect.unwrap(function).__globals__, include_extras=True)
    except NameError as error:
        raise TypeError(f"Primitive {name}: an annotation cannot be resolved: {error}.") from None


def _current_task() -> asyncio.Task[Any] | None:
    """Returns the task that is at work, None where no event loop is."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _check_name(name: str) -> None:
    if not (name.isascii() and name.isidentifier()) or name.startswith(_OURS):
        hint = "use a plain identifier that does not begin with _ or vqa_"
        raise ValueError(f"A primitive cannot be called {name!r}: {hint}.")
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name) or name in _RESERVED:
        raise ValueError(f"A primitive cannot be called {name!r}: programs use that name already. Choose another.")


class PrimitiveSet:
    """The primitives offered to a program, in the order of the API reference. It never changes.

    Raises:
        ValueError: two primitives have the same name.
        TypeError: something in the list was not made by :func:`primitive`.
    """

    def __init__(self, primitives: Iterable[Primitive]) -> None:
        self._by_name: dict[str, Primitive] = {}
        for item in primitives:
            if not isinstance(item, Primitive):
                raise TypeError(f"{item!r} is not a primitive. Put @primitive above the function.")
            if item.name in self._by_name:
                raise ValueError(f"Two primitives are called {item.name!r}. Rename one: @primitive(name=...).")
            self._by_name[item.name] = item

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Primitive]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"PrimitiveSet({', '.join(self._by_name)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    def get(self, name: str) -> Primitive:
        """Returns the primitive of that name.

        Raises:
            UnknownNameError: there is none.
        """
        try:
            return self._by_name[name]
        except KeyError:
            raise UnknownNameError.of("primitive", name, self.names) from None

    def subset(self, names: Iterable[str]) -> PrimitiveSet:
        """Returns the named primitives only, in the order given.

        Raises:
            UnknownNameError: one of them is not here.
        """
        return PrimitiveSet([self.get(name) for name in names])

    def extend(self, more: Iterable[Primitive]) -> PrimitiveSet:
        """Returns a new set with more primitives after these; this one is left as it is."""
        return PrimitiveSet([*self, *more])

    def reference(self) -> str:
        """Returns the API reference for prompts, one line per primitive."""
        return "\n".join(f"{item.signature}: {item.summary}" for item in self)

    def stubs(self, variables: Mapping[str, str] | None = None) -> str:
        """Returns Python source that declares the vocabulary to the static check.

        Args:
            variables: Annotations of further globals, e.g. ``{"images": "list[Image]"}``.
        """
        lines = [
            "class Image:",
            "    @property",
            "    def width(self) -> int: ...",
            "    @property",
            "    def height(self) -> int: ...",
            *(f"{name}: int" for name in CONSTANTS),
            *(f"{name}: {annotation}" for name, annotation in (variables or {}).items()),
        ]
        for item in self:
            lines += [f"def {item.stub}:", f"    {item.summary!r}", "    ..."]
        return "\n".join(lines) + "\n"
