"""The vocabulary: what a primitive may look like, what programs are told of it, and how calls are bound."""

from __future__ import annotations

import ast
import asyncio
from typing import Any, Optional

import pytest
from PIL import Image as PILImage

from codevqa.collections.collection import MAX_COLLECTION
from codevqa.core.errors import UnknownNameError
from codevqa.core.images import load_picture
from codevqa.primitives import Image, Primitive, PrimitiveSet, primitive
from codevqa.primitives.kinds import MAX_TEXT
from codevqa.prompts import ProgramExample
from codevqa.sandbox.stand_ins import PRELUDE, STAND_INS

ONE = Image(1, load_picture(PILImage.new("RGB", (8, 6))))


@primitive
async def query(context: Unheard, img: Image, question: str) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Answers a question about the picture.

    At length.
    """
    return f"{context} {img.index} {question}"


@primitive(name="boxes_of")
def find(img: Image, name: str, threshold: float = 0.3, most: Optional[int] = None) -> list[tuple[float, float]]:  # noqa: UP045
    """Returns boxes."""
    return [(img.index, threshold)]


@primitive
def choose(images: list[Image], flag: bool = False) -> Image | None:
    """Returns a picture, or None."""
    return images[0] if flag else None


VOCABULARY = PrimitiveSet([query, find, choose])


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("f(img) -> str", "annotate it"),
        ("f(img: Image)", "annotate what it returns"),
        ("f(img: Image) -> None", "NoneType is not supported"),
        ("f(*images: Image) -> str", "not supported"),
        ("f(x: dict[str, int]) -> str", "dict"),
        ("f(x: int | str) -> str", "int | str"),
        ("f(x: int = 'a') -> str", "must be int, not str"),
        ("f(x: list[int] = []) -> str", "a default must be"),
        ("f(x: Nowhere) -> str", "Nowhere"),
    ],
)
def test_signatures_that_cannot_be_offered(header: str, text: str) -> None:
    space: dict[str, Any] = {"Image": Image, "PILImage": PILImage, "Any": Any}
    exec(f"from __future__ import annotations\ndef {header}:\n    'Doc.'", space)
    with pytest.raises(TypeError) as caught:
        primitive(name="name")(space["f"])
    assert text in str(caught.value)
    space["f"].__doc__ = None
    with pytest.raises(TypeError, match="docstring"):
        primitive(name="name")(space["f"])


@pytest.mark.parametrize("name", ["", "x)\nimport os", "quéry", "__import__", "class", "match", "len", "answer", "TOP"])
def test_names_that_programs_use_already(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be called"):
        primitive(name=name)(query.function)


@pytest.mark.parametrize("source", [*STAND_INS.values(), PRELUDE])
def test_no_primitive_is_called_as_what_the_sandbox_runs_beside_it(source: str) -> None:
    tree = ast.parse(source)
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {target.id for node in tree.body if isinstance(node, ast.Assign) for target in node.targets}  # type: ignore[attr-defined]
    for name in sorted(names):
        with pytest.raises(ValueError, match=f"A primitive cannot be called '{name}'"):
            primitive(name=name)(query.function)


def test_sets() -> None:
    assert VOCABULARY.names == ("query", "boxes_of", "choose")
    assert VOCABULARY.subset(["choose", "query"]).names == ("choose", "query")
    with pytest.raises(UnknownNameError, match="boxes_of"):
        VOCABULARY.get("find")
    with pytest.raises(ValueError, match="Two primitives are called 'query'"):
        VOCABULARY.extend([query])
    with pytest.raises(TypeError, match="@primitive"):
        PrimitiveSet([query.function])  # type: ignore[list-item]


def test_bind_fills_in_and_widens() -> None:
    longest = "é" * MAX_TEXT
    assert VOCABULARY.get("query").bind((ONE,), {"question": longest}) == {"img": ONE, "question": longest}
    assert VOCABULARY.get("choose").bind(([ONE] * MAX_COLLECTION,), {})
    bound = VOCABULARY.get("boxes_of").bind((ONE, "a"), {"threshold": 1})
    assert bound == {"img": ONE, "name": "a", "threshold": 1.0, "most": None}
    assert type(bound["threshold"]) is float


class Str(str):
    """A text that lies about itself."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class Fake:
    """Something with the attributes of an image."""

    index, width, height = 1, 8, 6


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "text"),
    [
        ("query", (), {}, "missing a required argument: 'img'"),
        ("query", (ONE, "a", "b"), {}, "too many positional arguments"),
        ("query", (ONE, "a"), {"context": 1}, "unexpected keyword argument 'context'"),
        ("query", (ONE, "a"), {"img": ONE}, "multiple values for argument 'img'"),
        ("query", (ONE, 3), {}, "question must be str, not int"),
        ("query", (ONE, Str("a")), {}, "question must be str, not Str"),
        ("query", (Fake(), "a"), {}, "img must be Image, not Fake"),
        ("boxes_of", (ONE, "a", True), {}, "threshold must be float, not bool"),
        ("boxes_of", (ONE, "a", 0.3, True), {}, "most must be int, not bool"),
        ("choose", ((ONE,),), {}, "images must be list[Image], not tuple"),
        ("choose", ([ONE, 2],), {}, "images[1] must be Image, not int"),
        ("choose", ([ONE], 1), {}, "flag must be bool, not int"),
    ],
)
def test_bind_refuses_wrong_types(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        VOCABULARY.get(name).bind(args, kwargs)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("query", (ONE, "a" * (MAX_TEXT + 1)), "the limit is 1,000"),
        ("query", (ONE, "a\0b"), "character that no text has"),
        ("query", (ONE, "\ud800"), "character that no text has"),
        ("boxes_of", (ONE, "a", float("nan")), "finite"),
        ("boxes_of", (ONE, "a", 10**400), "too large"),
        ("boxes_of", (ONE, "a", 0.3, -(2**63)), "too large"),
        ("choose", ([ONE] * (MAX_COLLECTION + 1),), "the limit is 20,000"),
    ],
)
def test_bind_refuses_what_is_out_of_bounds(name: str, args: tuple[Any, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        VOCABULARY.get(name).bind(args, {})


def _call(which: Primitive, *args: object) -> object:
    return asyncio.run(which.call("context", which.bind(args, {})))


def test_a_result_is_held_to_its_type_and_may_be_longer_than_an_argument() -> None:
    @primitive
    def long(x: int) -> str:
        """Doc."""
        return "a" * x if x else x  # type: ignore[return-value]

    assert len(str(_call(long, 5000))) == 5000
    with pytest.raises(ValueError, match="limit"):
        _call(long, 10**6)
    with pytest.raises(TypeError, match=r"the result of long\(\) must be str, not int"):
        _call(long, 0)


def test_an_example_of_a_primitive_that_shows_nothing_of_it() -> None:
    def width(img: Image) -> int:
        """Returns the width."""
        return img.picture.pixels.width

    shown = ProgramExample("wide", "How wide is it?", "answer = width(img)")
    assert primitive(examples=[shown])(width).examples == (shown,)
    with pytest.raises(ValueError, match="Example 'wide' of primitive width does not call it"):
        primitive(examples=[ProgramExample("wide", "How wide is it?", "answer = img.width")])(width)
    with pytest.raises(TypeError, match=r"Give an Example of codevqa\.prompts"):
        primitive(examples=[("How wide is it?", "answer = width(img)")])(width)  # type: ignore[list-item]
