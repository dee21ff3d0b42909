"""Prompt sets: the preamble, the annotated programs and the reading examples a language model is shown.

A set is a folder:

=================  ====================================================================================================
``prompt.json``    form, numbers of examples and captions, primitives, licence
``preamble.txt``   instruction and constants; ``{api}`` is replaced by one line per primitive
``examples.jsonl`` ``{"id", "question", "program"}`` a line, and ``"form"`` where it differs from the set's; a program
                   starts after the line that opens ``img`` or ``images``, and leaves its result in ``answer``
``reading.jsonl``  ``{"id", "question", "captions", "answer"}`` a line; captions are a list, or one list a picture
=================  ====================================================================================================

``python -m codevqa.writing.lint`` checks the sets of this package.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, get_args

from ..core.answer import Form
from ..core.errors import SetupError, UnknownNameError

__all__ = ["Example", "PromptSet", "ReadingExample", "available", "load", "load_examples", "load_reading"]

API = "{api}"
"""Where the preamble lists the primitives."""
_HEAD_KEYS = frozenset(
    [
        "name",
        "form",
        "shots",
        "captions",
        "caption_draws",
        "reading_shots",
        "primitives",
        "image_labels",
        "licence",
        "about",
    ]
)
_EXAMPLE_KEYS = frozenset(("id", "question", "program", "form"))
_READING_KEYS = frozenset(("id", "question", "captions", "answer"))
_OPENING = re.compile(r"^\s*(?:(img)\s*=\s*open_image|(images)\s*=\s*open_images)\s*\(.*\)\s*$")
_HEADER = re.compile(r"^#\s*Image\b.*$", re.IGNORECASE)


@dataclass(frozen=True)
class Example:
    """One annotated program."""

    id: str
    question: str
    program: str
    """Source after the line that opens ``img`` or ``images``; leaves its result in ``answer``."""
    form: Form = "image"


@dataclass(frozen=True)
class ReadingExample:
    """One question answered from captions."""

    id: str
    question: str
    captions: tuple[str, ...] | tuple[tuple[str, ...], ...]
    """Captions of the picture, or of each picture of a set."""
    answer: str

    @property
    def form(self) -> Form:
        """``set`` where captions are listed for each picture, else ``image``."""
        return "set" if self.captions and not isinstance(self.captions[0], str) else "image"

    @property
    def by_image(self) -> tuple[tuple[str, ...], ...]:
        """The captions as one tuple a picture, whatever the form."""
        if any(isinstance(item, str) for item in self.captions):
            return (tuple(item for item in self.captions if isinstance(item, str)),)
        return tuple(item for item in self.captions if isinstance(item, tuple))

    def limit(self, captions: int) -> ReadingExample:
        """Returns the example with at most that many captions a picture."""
        cut = tuple(one[:captions] for one in self.by_image)
        return dataclasses.replace(self, captions=cut if self.form == "set" else cut[0])


@dataclass(frozen=True)
class PromptSet:
    """Everything a task shows the language model."""

    name: str
    form: Form
    """What its questions are about: one image, or a set of them."""
    shots: int
    """Programs shown."""
    captions: int
    """Captions read for each picture."""
    caption_draws: int
    """Captions the paper's release draws for each picture before it reads the first ``captions``."""
    reading_shots: int
    """Reading examples shown."""
    primitives: tuple[str, ...]
    """Names of the primitives the preamble lists, in order."""
    image_labels: tuple[str, ...] | None
    """What the pictures of a set are called in reading prompts; None numbers them."""
    preamble: str
    """Template: ``{api}`` stands for the API reference."""
    examples: tuple[Example, ...]
    reading: tuple[ReadingExample, ...]
    licence: str = ""
    about: str = ""

    def with_bank(
        self, examples: Iterable[Example] | None = None, reading: Iterable[ReadingExample] | None = None
    ) -> PromptSet:
        """Returns a copy with other examples, e.g. those of :func:`load_examples` and :func:`load_reading`.

        Args:
            examples: annotated programs; None keeps the set's own.
            reading: reading examples; None keeps the set's own. Captions beyond the set's number are dropped.
        """
        return dataclasses.replace(
            self,
            examples=self.examples if examples is None else tuple(examples),
            reading=self.reading if reading is None else tuple(item.limit(self.captions) for item in reading),
        )


def available() -> list[str]:
    """Returns the names of the sets in this package."""
    return sorted(entry.name for entry in files(__package__).iterdir() if (entry / "prompt.json").is_file())


def load(name_or_folder: str | os.PathLike[str]) -> PromptSet:
    """Loads a set of this package by name, or any folder laid out like one.

    Raises:
        UnknownNameError: there is no set of that name and no such folder.
        SetupError: a file is missing or malformed; the message names file and line.
    """
    if isinstance(name_or_folder, str) and name_or_folder in available():
        return _load_folder(files(__package__) / name_or_folder, name_or_folder)
    if str(name_or_folder) and Path(name_or_folder).is_dir():
        return _load_folder(Path(name_or_folder), str(name_or_folder))
    raise UnknownNameError(
        f"No prompt set {str(name_or_folder)!r}.", hint=f"There are: {', '.join(available())}; or give a folder."
    )


def load_examples(path: str | os.PathLike[str], form: Form | None = None) -> tuple[Example, ...]:
    """Loads annotated programs: ``examples.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``{id: {"question", "program"}}``. Header comments and the line that opens the pictures are cut
    where a file has them, since the prompt writes both.

    Args:
        path: the file.
        form: what the programs are about; None reads it off the variable each program uses, ``img`` or ``images``.

    Raises:
        SetupError: the file is missing or malformed.
    """
    source = Path(path)
    found: list[tuple[str, str, str, Form | None]] = []
    for record in _records(source):
        program, seen = _strip_opening(record.text("program"))
        named = record.choice("form", None)
        found.append((record.id(), record.text("question"), program, named or form or seen))
    counted = Counter(seen for *_, seen in found if seen)
    usual = counted.most_common(1)[0][0] if counted else "image"
    return tuple(Example(key, question, program, seen or usual) for key, question, program, seen in found)


def load_reading(path: str | os.PathLike[str]) -> tuple[ReadingExample, ...]:
    """Loads reading examples: ``reading.jsonl``, or the JSON layout of the paper's release.

    The release keeps ``[{"question_id", "question", "answer", "captions"}]`` with a hundred captions a picture;
    :meth:`PromptSet.with_bank` keeps as many as the set reads.

    Raises:
        SetupError: the file is missing or malformed.
    """
    return tuple(
        ReadingExample(record.id(), record.text("question"), record.captions(), record.text("answer"))
        for record in _records(Path(path))
    )


def _load_folder(folder: Traversable, shown: str) -> PromptSet:
    head = _Record(_json(_read(folder / "prompt.json"), f"{shown}/prompt.json"), f"{shown}/prompt.json")
    head.only(_HEAD_KEYS)
    form = head.choice("form")
    assert form is not None
    preamble = _read(folder / "preamble.txt")
    if preamble.count(API) != 1:
        raise SetupError(f"{shown}/preamble.txt: {API} must stand in it once, found {preamble.count(API)} times.")
    examples = tuple(
        Example(record.id(), record.text("question"), record.text("program"), record.choice("form", form) or form)
        for record in _lines(folder / "examples.jsonl", f"{shown}/examples.jsonl", _EXAMPLE_KEYS)
    )
    reading = tuple(
        ReadingExample(record.id(), record.text("question"), record.captions(), record.text("answer"))
        for record in _lines(folder / "reading.jsonl", f"{shown}/reading.jsonl", _READING_KEYS)
    )
    labels = head.strings("image_labels") if head.data.get("image_labels") is not None else None
    return PromptSet(
        name=head.text("name"),
        form=form,
        shots=head.count("shots"),
        captions=head.count("captions"),
        caption_draws=head.count("caption_draws"),
        reading_shots=head.count("reading_shots"),
        primitives=head.strings("primitives"),
        image_labels=labels,
        preamble=preamble,
        examples=examples,
        reading=reading,
        licence=head.text("licence"),
        about=head.text("about"),
    )


@dataclass(frozen=True)
class _Record:
    """A JSON object that says where it stands when something is wrong with it."""

    data: Mapping[str, Any]
    where: str

    def __post_init__(self) -> None:
        if not isinstance(self.data, dict):
            raise SetupError(f"{self.where}: expected a JSON object, found {type(self.data).__name__}.")

    def only(self, known: Iterable[str]) -> None:
        unknown = sorted(set(self.data) - set(known))
        if unknown:
            raise SetupError(f"{self.where}: unknown key {unknown[0]!r}.", hint=f"Known: {', '.join(sorted(known))}.")

    def get(self, key: str) -> Any:
        if key not in self.data:
            raise SetupError(f"{self.where}: {key!r} is missing.")
        return self.data[key]

    def text(self, key: str) -> str:
        value = self.get(key)
        if not isinstance(value, str) or not value.strip():
            raise SetupError(f"{self.where}: {key!r} must be a text that is not empty.")
        return value

    def id(self) -> str:
        key = "id" if "id" in self.data else "question_id"
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int | str) or str(value) == "":
            raise SetupError(f"{self.where}: {key!r} must be a text or a whole number.")
        return str(value)

    def count(self, key: str) -> int:
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise SetupError(f"{self.where}: {key!r} must be a whole number, 0 or more.")
        return value

    def choice(self, key: str, *default: Form | None) -> Form | None:
        if default and key not in self.data:
            return default[0]
        value = self.get(key)
        for form in get_args(Form):
            if value == form:
                return form  # type: ignore[no-any-return]
        raise SetupError(f"{self.where}: {key!r} must be one of {', '.join(get_args(Form))}, not {value!r}.")

    def strings(self, key: str) -> tuple[str, ...]:
        value = self.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
            raise SetupError(f"{self.where}: {key!r} must be a list of texts, none empty.")
        return tuple(value)

    def captions(self) -> tuple[str, ...] | tuple[tuple[str, ...], ...]:
        value = self.get("captions")
        if isinstance(value, str) and value.strip():
            return (value,)
        if value and isinstance(value, list) and all(isinstance(one, list) for one in value):
            return tuple(_Record({"captions": one}, self.where).strings("captions") for one in value)
        captions = self.strings("captions")
        if not captions:
            raise SetupError(f"{self.where}: 'captions' is empty.")
        return captions


def _read(path: Traversable) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, IsADirectoryError):
        raise SetupError(f"No file {path}.", hint="A prompt set needs it: see codevqa.prompts.") from None
    except OSError as error:
        raise SetupError(f"Cannot read {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}.") from None


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SetupError(f"{where}, line {error.lineno}: not JSON: {error.msg}.") from None


def _lines(path: Traversable, shown: str, known: Iterable[str] | None = None) -> Iterator[_Record]:
    # Not splitlines(): a question may hold U+2028, which ends no line of JSON.
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{shown}, line {number}"
        try:
            record = _Record(json.loads(line), where)
        except json.JSONDecodeError as error:
            raise SetupError(f"{where}: not JSON: {error.msg}.") from None
        if known is not None:
            record.only(known)
        yield record


def _records(path: Path) -> Iterator[_Record]:
    """Yields the records of a JSON Lines file, a JSON list, or a JSON object keyed by id."""
    if path.suffix == ".jsonl":
        yield from _lines(path, str(path))
        return
    data = _json(_read(path), str(path))
    if isinstance(data, dict):
        for key, value in data.items():
            record = _Record(value, f"{path}, id {key}")
            yield _Record({**record.data, "id": key}, record.where)
    elif isinstance(data, list):
        for number, value in enumerate(data, 1):
            yield _Record(value, f"{path}, record {number}")
    else:
        raise SetupError(f"{path}: expected a JSON object or list, found {type(data).__name__}.")


def _strip_opening(program: str) -> tuple[str, Form | None]:
    """Cuts header comments and the opening line; returns the rest and the form it shows, if it shows one."""
    form: Form | None = None
    lines = program.replace("\r\n", "\n").strip("\n").split("\n")
    while lines and (not lines[0].strip() or _HEADER.match(lines[0]) or _OPENING.match(lines[0])):
        opening = _OPENING.match(lines.pop(0))
        if opening:
            form = "set" if opening.group(2) else "image"
    body = "\n".join(lines).rstrip()
    return body, form or _form_used(body)


def _form_used(program: str) -> Form | None:
    try:
        used = {node.id for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError):
        # Some published programs do not parse; their strings may speak of images, so only the code counts.
        used = set(re.findall(r"\w+", re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "", program)))
    if "images" in used:
        return "set"
    return "image" if "img" in used else None
