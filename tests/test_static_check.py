"""The static check: plain programs pass it, and those that are sure to fail do not. CPython is the judge of both."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sandbox_kit import IMAGES, LIMITS, PRIMITIVES, Kit

from codevqa.core.errors import ProgramError, ProgramSyntaxError
from codevqa.primitives import Image, primitive
from codevqa.sandbox import Sandbox


@primitive
def count(img: Image, object: str) -> int:
    """Returns how many there are."""
    return len(object)


@primitive
def crop(img: Image, object: str) -> Image:
    """Returns a part of the picture."""
    return img


@primitive
def find_object(img: Image, object: str) -> list[tuple[float, float, float, float]]:
    """Returns boxes."""
    return [(0.0, 1.0, 2.0, 3.0)]


VOCABULARY = PRIMITIVES.extend([count, crop, find_object])


def programs(name: str) -> list[str]:
    """Returns the programs of a file."""
    return (Path(__file__).parent / "data" / name).read_text().split("---\n")


@pytest.fixture(scope="module")
def kit() -> Iterator[Kit]:
    """A sandbox with more primitives."""
    kit = Kit()
    shared, kit.box = kit.box, Sandbox(VOCABULARY, LIMITS, workers=2)
    yield kit
    kit.close()
    asyncio.run(shared.aclose())


def in_cpython(source: str) -> None:
    """Runs a program in CPython."""

    def called(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            reply = VOCABULARY.get(name).call(None, VOCABULARY.get(name).bind(args, kwargs))
            return asyncio.run(reply)

        return call

    module = ModuleType("program")
    sys.modules["program"] = module  # where a dataclass looks for its annotations
    space = {**module.__dict__, "Image": Image, "images": IMAGES.copy(), "img": IMAGES[0]}
    exec(compile(source, "program", "exec", dont_inherit=True), space | {n: called(n) for n in VOCABULARY.names})


@pytest.mark.parametrize("source", programs("programs_that_run.txt"))
def test_programs_that_run_pass(kit: Kit, source: str) -> None:
    in_cpython(source)
    kit.check(source)


@pytest.mark.parametrize("source", programs("programs_that_fail.txt"))
def test_programs_that_fail_do_not_pass(kit: Kit, source: str) -> None:
    with pytest.raises((AttributeError, ImportError, IndexError, NameError, SyntaxError, TypeError, ValueError)):
        in_cpython(source)
    with pytest.raises(ProgramError) as caught:
        kit.check(source)
    assert caught.value.line is not None
    assert isinstance(caught.value, ProgramSyntaxError) == (_parses(source) is False)


def _parses(source: str) -> bool:
    try:
        compile(source, "program", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def test_a_method_with_the_name_of_a_primitive_leaves_pictures_as_keys(kit: Kit) -> None:
    source = 'count = ["red"].count("red")\nseen = {im: count for im in images}\nanswer = seen[images[0]]'
    assert kit.value(source) == 1
