"""Programs made to keep whoever reads them busy: calls are read off them with bounded work, on the event loop."""

# ruff: noqa: E501 -- a program reads best on one line

import sys
from types import FrameType

import pytest
from sandbox_kit import IMAGES as PICTURES

from codevqa.engine.call_plan import MAX_TEXT, plan_calls
from codevqa.sandbox.program_shape import shape

WANTED = {"query", "get_pos", "find_matching_image"}


def calls(source: str) -> list[object]:
    """Returns the second argument of each planned call."""
    return [one.args[1] for one in plan_calls(source, PICTURES, WANTED)]


DOUBLING = "a = 'x'\nfor i in range(60):\n    a = {}\nquery(images[0], a)\nfind_matching_image(a, 'x')\nanswer = len(a)"


ATTACKS = {
    "shared lists": DOUBLING.format("[a, a]"),
    "shared tuples": DOUBLING.format("(a, a)"),
    "zipped lists": "a = images\n" + DOUBLING.partition("\n")[2].format("list(zip(a, a))"),
    "doubled text": DOUBLING.format("f'{a}{a}'"),
    "loops": "for a in range(9**9):\n    for b in range(9**9):\n        query(images[0], 'a')",
    "many loops": "".join(" " * n + f"for a{n} in range(64):\n" for n in range(60)) + " " * 60 + "query(images[0], 'a')",
    "many ranges": "answer = [0 " + "for a in b " * 700 + "]",
    "names": "=".join(f"a{n}" for n in range(1500)) + " = 1\nfor a in range(64):\n    for b in range(64):\n        if a:\n            b = 1",
    "a huge number": "answer = f'{0x" + "f" * 6000 + "}'",
    "a huge list": "a = [" + "1," * 3000 + "]\nfor b in range(64):\n    for c in range(64):\n        a = a[:]",
    "brackets": "answer = " + "[" * 4000 + "]" * 4000,
    "signs": "x = " + "-" * 7000 + "1",
    "items": "answer = a" + "[0]" * 2600,
    "a comment": "#" * 10_000 + "\nquery(images[0], 'a')",
}  # fmt: skip


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_program_that_is_too_much_is_left_alone_after_so_many_steps(source: str) -> None:
    steps = 0

    def count(frame: FrameType, event: str, held: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")
        assert steps < 200_000

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = plan_calls(source, PICTURES, WANTED)
    finally:
        sys.setprofile(before)
    assert len(found) <= 4000
    assert all(len(text) <= MAX_TEXT for one in found for text in one.args if isinstance(text, str))
    assert shape(source, WANTED) is None or len(shape(source, WANTED) or "") < 20_000


def test_texts_and_lists_are_followed_until_they_are_too_large() -> None:
    doubled = "a = 'x'\nfor i in range({}):\n    a = f'{{a}}{{a}}'\nquery(images[0], a)"
    assert calls(doubled.format(9)) == [512 * "x"]
    assert calls(doubled.format(10)) == []
    assert calls("find_matching_image([" + "images[0]," * 64 + "], 'a')")
    assert calls("find_matching_image([" + "images[0]," * 65 + "], 'a')") == []
    assert len(calls("for n in range(100):\n    get_pos(images[0], f'{n}')")) == 64
    said = "query(images[0], 'a')\n"
    assert calls(said + "#" * 8000) == ["a"]
    assert calls(said + "#" * 8192) == [] and shape(said + "#" * 8192, WANTED) is None
