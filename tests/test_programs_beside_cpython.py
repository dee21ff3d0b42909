"""Programs as language models write them give what CPython gives, call by call; those that cannot say what to write."""

# ruff: noqa: E501 -- a program reads best on one line

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage
from sandbox_kit import Args, Kit, answering

from codevqa.core.errors import ProgramError, ProgramRuntimeError
from codevqa.core.images import load_picture
from codevqa.primitives import CONSTANTS, Image

FILE = Path(__file__).parent / "data" / "programs_beside_cpython.txt"
PROGRAMS = [f"img = images[0]\n{source}" for source in FILE.read_text("utf-8").split("\n---\n")]
IMAGES = [Image(number, load_picture(PILImage.new("RGB", (8 * number, 9 - number)))) for number in (1, 2, 3)]
SHORT = re.compile(r"\b(?:any|next)\(.* for ")
Calls = list[tuple[Any, ...]]


def query(img: Image, question: str) -> str:
    if type(img) is not Image:
        raise TypeError(f"query() img must be Image, not {type(img).__name__}")
    place = (img.index + len(question)) % 3
    if "how many" in question:
        return ("2", "three", "1")[place]
    if "color" in question:
        return ("red", "Blue ", "green.")[place]
    return ("yes", "no", "yes")[place] if question.startswith(("is", "are")) else ("cat", "a dog", "the bird")[place]


def get_pos(img: Image, object: str) -> tuple[float, float]:
    return float((img.index * 5 + len(object)) % 11), 24.0 - len(object) * img.index


def find_matching_image(images: list[Image], phrase: str) -> Image:
    return images[len(phrase) % len(images)]


FAKES: dict[str, Any] = {"query": query, "get_pos": get_pos, "find_matching_image": find_matching_image}


def plain(value: Any) -> Any:
    """A value as it crosses the boundary: subclasses of dict and tuple as dict and tuple."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (list if isinstance(value, list) else tuple)(map(plain, value))
    return value


def in_cpython(source: str) -> tuple[object, str, Calls]:
    """What CPython gives, what is printed, and the calls made with their lines."""
    calls: Calls = []

    def recorded(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            frame: Any = sys._getframe(1)
            while frame.f_code.co_filename != "<program>":
                frame = frame.f_back
            calls.append((name, args, kwargs, frame.f_lineno))
            return FAKES[name](*args, **kwargs)

        return call

    space: dict[str, Any] = {"images": list(IMAGES), "Image": Image, "__name__": "__main__"}
    space |= {**CONSTANTS, **{name: recorded(name) for name in FAKES}}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            exec(compile(source, "<program>", "exec"), space)
            answer = repr(plain(space["answer"]))
        except Exception as error:  # noqa: BLE001 -- whatever CPython says
            answer = f"fails: {type(error).__name__}"
    return answer, printed.getvalue(), calls


def in_sandbox(kit: Kit, source: str) -> tuple[object, str, Calls]:
    """The same of the sandbox."""
    calls: Calls = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        calls.append((name, args, kwargs, line))
        result: object = FAKES[name](*args, **kwargs)
        return result

    try:
        outcome = kit.runner.run(kit.box.run(source, host, images=IMAGES))
    except ProgramRuntimeError as error:
        return f"fails: {error.message.partition(':')[0].split()[-1]}", error.printed, calls
    return repr(outcome.value), outcome.printed, calls


def test_programs_give_what_cpython_gives(kit: Kit) -> None:
    assert len(PROGRAMS) >= 240
    differ = []
    for source in PROGRAMS:
        ours, theirs = in_sandbox(kit, source), in_cpython(source)
        if SHORT.search(source):  # the sandbox asks on where CPython has seen enough
            ours = (*ours[:2], ours[2][: len(theirs[2])])
        if ours != theirs:
            differ.append(f"{source}\n-> {ours}\nnot {theirs}")
    assert not differ, "\n\n".join([f"{len(differ)} of {len(PROGRAMS)}", *differ])


LEFT_OUT = {
    "class Thing(dict):\n    pass\nanswer = 1": "Write functions, and raise ValueError for an error of your own.",
    "class Thing:\n    @property\n    def name(self):\n        return 'cat'\nanswer = 1": "Write plain functions and methods.",
    "def f():\n    x = yield 1\nanswer = list(f())": "Append to a list and return it.",
    "class Thing:\n    def parts(self):\n        yield 1\nanswer = list(Thing().parts())": "Append to a list and return it.",
    "def f():\n    while True:\n        yield 1\nanswer = next(f())": "return a list instead",
    "class A:\n    pass\na = A()\na.x = 1\ndel a.x\nanswer = 2": "Write x.pop(key), or give the name another value.",
    "from math import *\nanswer = sqrt(4)": "Import each name that you use.",
    "import re\nanswer = re.sub('a', lambda m: 'b', 'aa')": "Join what re.split returns, or use str.replace.",
    "from collections import defaultdict\nd = defaultdict(lambda: query(images[0], 'a'))\nanswer = d['b']": "Call it before",
    "answer = {im: 1 for im in images}": "Use texts or numbers as keys.",
}
"""Programs that CPython runs and the sandbox does not, and what the error says to write instead."""


@pytest.mark.parametrize("source", LEFT_OUT)
def test_programs_that_cannot_run_are_told_what_to_write(kit: Kit, source: str) -> None:
    assert not str(in_cpython(source)[0]).startswith("fails")
    with pytest.raises(ProgramError) as caught:
        kit.runner.run(kit.box.run(source, answering, images=IMAGES))
    assert LEFT_OUT[source] in str(caught.value)
