"""Which calls are read off a program, and the shape of a program."""

# ruff: noqa: E501 -- a program reads best on one line

import subprocess
import sys

import pytest
from PIL import Image as PILImage

from codevqa.core.images import load_picture
from codevqa.engine.call_plan import plan_calls
from codevqa.primitives.kinds import Image

WANTED = {"query", "get_pos", "find_matching_image"}
PICTURES = tuple(Image(number, load_picture(PILImage.new("RGB", (8, 8), (number, 0, 0)))) for number in range(1, 4))


def shown(value: object) -> object:
    if isinstance(value, Image):
        return f"#{value.index}"
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


def calls(source: str, count: int = 3) -> list[str]:
    """Each planned call as ``name first second``."""
    found = plan_calls(source, PICTURES[:count], WANTED)
    return [" ".join([one.name, *(str(shown(value)) for value in (*one.args, *one.kwargs.values()))]) for one in found]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("img = open_image('Image2.jpg')\nanswer = query(img=img, question='a')", ["query #2 a"]),
        ("images = open_images('ImageSet1.jpg')\nfor img in images:\n    x = query(img, 'a')", ["query #1 a", "query #2 a", "query #3 a"]),
        ("answer = [query(i, 'a') for i in images[1:]]", ["query #2 a", "query #3 a"]),
        ("answer = any(query(i, 'a') == 'yes' for i in images[:2])", ["query #1 a", "query #2 a"]),
        ("answer = len({query(i, q) for i in images[:2] for q in ('a', 'b')})", ["query #1 a", "query #1 b", "query #2 a", "query #2 b"]),
        ("for n, i in enumerate(images[:2], 1):\n    query(i, f'is it {n}?')", ["query #1 is it 1?", "query #2 is it 2?"]),
        ("for n, (i, t) in enumerate(zip(images, ('cat', 'dog'))):\n    get_pos(i, t)", ["get_pos #1 cat", "get_pos #2 dog"]),
        ("img = find_matching_image(images, 'dog')\nanswer = query(img, 'a')", ["find_matching_image ['#1', '#2', '#3'] dog"]),
        ("a = query(images[0], 'a')\nb = query(images[0], f'{a}?')\nc = query(images[0], 'c')", ["query #1 a", "query #1 c"]),
        ("found = []\nfor i in images[:2]:\n    found.append(query(i, 'a').lower())\nfor i in found:\n    query(images[0], i)", ["query #1 a", "query #2 a"]),
        # What may not happen is left to the program.
        ("if query(images[0], 'a') == 'yes':\n    query(images[1], 'b')\nelse:\n    query(images[1], 'c')", ["query #1 a"]),
        ("answer = query(images[0], 'a') if query(images[0], 'b') else query(images[0], 'c')", ["query #1 b"]),
        ("for i in images:\n    if query(i, 'a') == 'yes':\n        break\nquery(images[0], 'b')", ["query #1 a", "query #1 b"]),
        ("n = [query(i, 'a') for i in images if query(i, 'b') == 'yes']", ["query #1 b", "query #2 b", "query #3 b"]),
        ("for i in found:\n    query(images[0], 'a')", []),
        # What a branch or a loop assigned is unknown afterwards, and a comprehension's variables are its own.
        ("if query(images[0], 'a'):\n    i = images[1]\n    query(i, 'b')\nelse:\n    i = images[2]\nquery(i, 'c')", ["query #1 a"]),
        ("for i in found:\n    j = images[0]\nquery(j, 'a')", []),
        # What is not known, is not called, or is something else.
        ("query = lambda i, q: 'no'\nanswer = query(images[0], 'a')", []),
        ("images.pop(0)\nanswer = query(images[0], 'a')", []),
        ("a, *b = images\nquery(b, 'a')\nquery(images[0], 'b')", ["query #1 b"]),
        ("answer = query(*[images[0], 'a'])", []),
        ("answer = query(images[0], 'a'", []),
        # Where it does not know how to go on it ends.
        ("query(images[0], 'a')\ndef f(i):\n    return query(i, 'a')\nanswer = f(images[0])", ["query #1 a"]),
    ],
)  # fmt: skip
def test_calls_read_off_a_program(source: str, expected: list[str]) -> None:
    assert calls(source) == expected


def test_an_odd_backslash_of_a_model_s_is_no_warning_of_the_user_s() -> None:
    code = "from codevqa.core.program_tree import parse; assert parse(r\"answer = '\\d'\") is not None"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0
