"""Which calls are read off a program, and how sure they are; the shape by which programs share a static check."""

# ruff: noqa: E501 -- a program reads best on one line

from __future__ import annotations

import pytest
from PIL import Image as PILImage

from codevqa.core.images import load_picture
from codevqa.engine.call_plan import _walked, plan
from codevqa.primitives.kinds import Image
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox.program_shape import outline, shape

WANTED = {"query", "get_pos", "find_matching_image"}
PICTURES = tuple(Image(number, load_picture(PILImage.new("RGB", (8, 8), (number, 0, 0)))) for number in range(1, 4))


def shown(value: object) -> object:
    if isinstance(value, Image):
        return f"#{value.index}"
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


def calls(source: str, count: int = 3) -> list[str]:
    """Each planned call as ``name first second``, with a ``?`` where it is only likely."""
    found = plan(source, PICTURES[:count], WANTED)
    return [
        " ".join([one.name, *(str(shown(value)) for value in (*one.args, *one.kwargs.values()))])
        + "?" * (not one.certain)
        for one in found
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("answer = query(images[0], 'a')", ["query #1 a"]),
        ("img = open_image('Image2.jpg')\nanswer = query(img=img, question='a')", ["query #2 a"]),
        ("images = open_images('ImageSet1.jpg')\nfor img in images:\n    x = query(img, 'a')", ["query #1 a", "query #2 a", "query #3 a"]),
        ("answer = [query(i, 'a') for i in images[1:]]", ["query #2 a", "query #3 a"]),
        ("answer = any(query(i, 'a') == 'yes' for i in images[:2])", ["query #1 a", "query #2 a"]),
        ("for n, i in enumerate(images[:2]):\n    query(i, f'is it {n}?')", ["query #1 is it 0?", "query #2 is it 1?"]),
        ("for n in range(len(images)):\n    get_pos(images[n], 'a' + 'b')", ["get_pos #1 ab", "get_pos #2 ab", "get_pos #3 ab"]),
        ("img = find_matching_image(images, 'dog')\nanswer = query(img, 'a')", ["find_matching_image ['#1', '#2', '#3'] dog"]),
        ("things = ['cat', 'dog']\nfor t in things:\n    get_pos(images[0], t)", ["get_pos #1 cat", "get_pos #1 dog"]),
        ("a = query(images[0], 'a')\nb = query(images[0], f'{a}?')\nc = query(images[0], 'c')", ["query #1 a", "query #1 c"]),
        # What may not happen is likely only.
        ("if query(images[0], 'a') == 'yes':\n    query(images[1], 'b')\nelse:\n    query(images[1], 'c')", ["query #1 a", "query #2 b?", "query #2 c?"]),
        ("if len(images) == 3:\n    query(images[0], 'b')\nelse:\n    query(images[0], 'c')", ["query #1 b"]),
        ("query(images[0], 'a') == 'x' and query(images[1], 'b')", ["query #1 a", "query #2 b?"]),
        ("answer = query(images[0], 'a') if query(images[0], 'b') else query(images[0], 'c')", ["query #1 b", "query #1 a?", "query #1 c?"]),
        ("for i in images:\n    if query(i, 'a') == 'yes':\n        break\nquery(images[0], 'b')", ["query #1 a", "query #2 a?", "query #3 a?", "query #1 b"]),
        ("for i in images:\n    if query(i, 'a') == 'yes':\n        continue\n    query(i, 'b')", ["query #1 a", "query #1 b?", "query #2 a", "query #2 b?", "query #3 a", "query #3 b?"]),
        ("for i in images:\n    query(i, 'a')\n    break", ["query #1 a"]),
        ("n = [query(i, 'a') for i in images if query(i, 'b') == 'yes']", ["query #1 b", "query #1 a?", "query #2 b", "query #2 a?", "query #3 b", "query #3 a?"]),
        ("while query(images[0], 'a') == 'no':\n    query(images[0], 'b')", ["query #1 a", "query #1 b?"]),
        ("try:\n    query(images[0], 'a')\nexcept ValueError:\n    query(images[0], 'b')", ["query #1 a"]),
        ("if query(images[0], 'a'):\n    i = images[1]\nelse:\n    i = images[2]\nquery(i, 'b')", ["query #1 a"]),
        ("for i in found:\n    query(images[0], 'a')", ["query #1 a?"]),
        # What is not known, is not called, or is something else.
        ("def f(i):\n    return query(i, 'a')\nanswer = f(images[0])", []),
        ("query = lambda i, q: 'no'\nanswer = query(images[0], 'a')", []),
        ("images.pop(0)\nanswer = query(images[0], 'a')", []),
        ("i = images[7]\nquery(i, 'a')", []),
        ("answer = query(*[images[0], 'a'])", []),
        ("answer = query(images[0], 'a'", []),
        ("i = [i for i in images][0]\nquery(i, 'a')", ["query #1 a"]),
    ],
)  # fmt: skip
def test_calls_read_off_a_program(source: str, expected: list[str]) -> None:
    assert calls(source) == expected


def test_one_picture_is_img() -> None:
    assert calls("answer = query(img, 'a')", count=1) == ["query #1 a"]
    assert calls("answer = query(img, 'a')", count=2) == []


@pytest.mark.parametrize(
    "source",
    [
        "for a in range(9**9):\n    for b in range(9**9):\n        query(images[0], 'a')",
        "x = " + "(" * 3000 + "1" + ")" * 3000,
        "x = " + "-" * 7000 + "1",
        "x = " + "[" * 90 + "]" * 90 + "\nquery(images[0], 'a')",
        "x = 'a'\n" + "x = x + x\n" * 400,
        "x = 1\nwhile True:\n    x = x + 1",
        "#" * 10_000 + "\nquery(images[0], 'a')",
    ],
)
def test_a_program_that_is_too_much_is_left_alone(source: str) -> None:
    assert len(calls(source)) <= 4000
    assert shape(source, WANTED) is None or len(shape(source, WANTED) or "") < 20_000


def test_programs_of_one_shape() -> None:
    one = "knife = query(img, 'is there a knife?')  # look\nanswer = 'yes' if knife == 'yes' else 'no'"
    two = "cup=query(img,\n  f'a {1} cup?')\nanswer = 'yes' if cup == 'yes' else 'no'"
    three = "cup = query(img, question='a cup?')\nanswer = 'yes' if cup == 'yes' else 'no'"
    assert shape(one, WANTED) == "_v0 = query(img, 'text')\nanswer = 'yes' if _v0 == 'yes' else 'no'"
    assert shape(one, WANTED) == shape(one.replace("knife", "spoon"), WANTED)
    assert len({shape(source, WANTED) for source in (one, two, three)}) == 3


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("answer = 'abc'[2]", "answer = 'a'[2]"),  # a text that is not handed to a primitive counts
        ("answer = query(img, 3)", "answer = query(img, 'a')"),
        ("a = 1\nb = 2\nanswer = a", "a = 1\nb = 2\nanswer = b"),
        ("len = 1\nanswer = len", "size = 1\nanswer = size"),
        ("imag = 1\nanswer = img", "img = 1\nanswer = img"),
        ("x = 1\nanswer = y", "y = 1\nanswer = y"),
    ],
)
def test_programs_of_different_shape(one: str, two: str) -> None:
    assert shape(one, WANTED) != shape(two, WANTED)


@pytest.mark.parametrize(
    "source",
    [
        "query = 1\nanswer = query('a')",
        "def query(a):\n    return a\nanswer = query('a')",
        "from re import sub as query\nanswer = query('a')",
        "answer = (lambda query: query('a'))(len)",
        "answer = query(",
    ],
)
def test_programs_without_a_shape(source: str) -> None:
    assert shape(source, WANTED) is None


def test_names_stay_where_they_are_also_written_otherwise() -> None:
    assert shape("def f(cup):\n    return cup\nanswer = f(1)", WANTED) == "def f(cup):\n    return cup\nanswer = f(1)"


NAMES = VISUAL.names
ALIKE = [
    ('answer = query(img, "is it red?")', 'answer = query(img, "who\'s (there), # 1?")'),
    (
        'img = open_image("Image1.jpg")\nanswer = query(img, "a")',
        'img = open_image("Image7.jpg")\nanswer = query(img, "b")',
    ),
    ('answer = str([query(i, "a") for i in images])', 'answer = str([query(i, "b") for i in images])'),
]


@pytest.mark.parametrize(("one", "two"), ALIKE)
def test_programs_of_one_outline_have_one_shape(one: str, two: str) -> None:
    assert one != two
    assert outline(one, NAMES) is not None
    assert outline(one, NAMES) == outline(two, NAMES)
    assert shape(one, NAMES) == shape(two, NAMES)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ('answer = "abc"[2]', 'answer = "a"[2]'),
        ('answer = query(img, "a") + "b"', 'answer = query(img, "a") + "c"'),
        ('answer = query(img, "a" + "b")', 'answer = query(img, "c" + "b")'),
        ('answer = query(img, "a" "b")', 'answer = query(img, "c" "b")'),
        ('answer = x.query(img, "a")', 'answer = x.query(img, "b")'),
        ('answer = requery(img, "a")', 'answer = requery(img, "b")'),
        ('answer = "= query(img, " + ")"', 'answer = "= query(img, " - ")"'),
        ('answer = ["= query(", "a", ")"]', 'answer = ["= query(", "b", ")"]'),
        ('answer = query(img, "a")', 'answer = query(img,  "a")'),
    ],
)
def test_whatever_may_count_is_part_of_the_outline(one: str, two: str) -> None:
    assert outline(one, NAMES) != outline(two, NAMES)


@pytest.mark.parametrize(
    "source",
    [
        'answer = query(img, f"a {1}")',
        'answer = query(img, r"a")',
        'answer = query(img, "a\\n")',
        "answer = query(img, 'a')",
        'answer = query(img, "a")  # it\'s "so"',
        'answer = query(img, """a""")',
        'answer = query(img, "a)',
        'answer = query(img, "a\nb")',
        'answer = query(img, "a")\nx = 1 + \\\n2',
        'answer = query(img, "' + "a" * 9000 + '")',
    ],
)
def test_programs_without_an_outline(source: str) -> None:
    assert outline(source, NAMES) is None


@pytest.mark.parametrize(
    "source",
    [
        'img = open_image("Image7.jpg")\nx, y = get_pos(img, "WORD")\nif query(img, "is it WORD?") == "yes":\n    get_pos(img, "other WORD")',
        'images = open_images("ImageSet2.jpg")\nimg = find_matching_image(images, "WORD")\nanswer = [query(i, "a WORD") for i in images]',
        'for t in ["WORD", "dog"]:\n    get_pos(images[0], t)\nquery(images[1], "WORD")',
        'img = open_image("ImageWORD.jpg")\nquery(img, "WORD")',
        'query = "WORD"\nanswer = query("WORD")\nget_pos(images[0], "WORD")',
        'a = query(images[0], "WORD")\nb = get_pos(images[0], f"WORD {a}")\nc = get_pos(images[0], "a" "WORD")',
        'query(images[0], "WORD \ue0000")',
        'a = "\ue0000"\nquery(images[0], "WORD")\nget_pos(images[0], a)',
        'query(images[0], "WORD"',
    ],
)
def test_programs_that_differ_in_words_alone_are_walked_once_and_planned_as_if_each_were(source: str) -> None:
    for word, count in (("cat", 3), ("2", 3), ("dog", 1), ("cat", 1), ("'quoted'", 3), ("\ue0000", 3)):
        text = source.replace("WORD", word)
        assert plan(text, PICTURES[:count], WANTED) == _walked(text, PICTURES[:count], WANTED)
        for one in plan(text, PICTURES[:count], WANTED):
            assert all(held.picture is PICTURES[held.index - 1].picture for held in one.args if isinstance(held, Image))


def test_the_second_program_of_a_kind_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    source = 'img, x = images[0], 12345\nanswer = query(img, "WORD")'
    assert calls(source.replace("WORD", "a")) == ["query #1 a"]
    monkeypatch.setattr("codevqa.engine.call_plan.parse", lambda source: pytest.fail("it was read again"))
    assert calls(source.replace("WORD", "b")) == ["query #1 b"]
