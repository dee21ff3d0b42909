"""What a program compares is read off it and shown on one picture: the right points, the right word, or nothing."""

from __future__ import annotations

import pytest
from pages_kit import Read, answer, picture

from codevqa.core.errors import ErrorRecord
from codevqa.core.trace import Call, ImageRef, Program, Trace
from codevqa.pages import trace_page
from codevqa.pages.comparison import comparisons

PICTURES = (picture(200, 200, name="garden.png"), picture(90, 60, "red"))
HOUSE, TREE, EMPTY = (6.75, 11.25), (15.75, 9.75), (12.5, 20.5)
OPEN = 'img = open_image("Image7.jpg")\nx1, y1 = get_pos(img, "red house")\nx2, y2 = get_pos(img, "green tree")\n'


def placed(index: int, line: int, name: str, point: object, image: int = 1, **fields: object) -> Call:
    arguments = {"img": ImageRef(image), "object": name}
    return Call(index, "get_pos", arguments, point, 0.1, line, **fields)  # type: ignore[arg-type]


CALLS = (
    Call(1, "open_image", {"path": "Image7.jpg"}, ImageRef(1), 0.01, 1),
    placed(2, 2, "red house", HOUSE),
    placed(3, 3, "green tree", TREE),
)


def comparison_lines(source: str, calls: tuple[Call, ...] = CALLS) -> list[str]:
    return [
        f"{comparison.source}: {comparison.values} is {comparison.holds}" for comparison in comparisons(source, calls)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('answer = "yes" if x1 < x2 else "no"', ["x1 < x2: 6.75 < 15.75 is True"]),
        ("answer = x1 < x2 and y1 >= y2", ["x1 < x2: 6.75 < 15.75 is True", "y1 >= y2: 11.25 >= 9.75 is True"]),
        ('answer = "left" if x1 < x2 else "top" if y1 < y2 else "no"', ["x1 < x2: 6.75 < 15.75 is True"]),
        (
            "if x1 > x2:\n    answer = y1 < y2\nelse:\n    answer = y1 > y2",
            ["x1 > x2: 6.75 > 15.75 is False", "y1 > y2: 11.25 > 9.75 is True"],
        ),
        ("answer = x1 < (LEFT + RIGHT) / 2", ["x1 < (LEFT + RIGHT) / 2: 6.75 < 12 is True"]),
        ("answer = x1 < 12 < x2", ["x1 < 12 < x2: 6.75 < 12 < 15.75 is True"]),
    ],
)
def test_a_comparison_of_positions_is_read_with_what_it_says(line: str, expected: list[str]) -> None:
    assert comparison_lines(OPEN + line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "x1 = 20\nanswer = x1 < x2",  # set twice: which one it was cannot be told
        "answer = x1 < y2",
        "answer = x1 < 3 / 0",
        "answer = x1 <",
        "answer = x1 < " + "(" * 300 + "x2" + ")" * 300,
    ],
)
def test_what_cannot_be_told_is_not_told(line: str) -> None:
    assert comparison_lines(OPEN + line) == []


def test_only_points_of_one_picture_that_are_sure_to_be_meant_are_compared() -> None:
    source = OPEN + "answer = x1 < x2"
    assert comparison_lines(source, (*CALLS[:2], placed(3, 3, "green tree", TREE, image=2))) == []
    assert comparison_lines(source, (*CALLS, placed(4, 3, "green tree", EMPTY))) == []  # a line that ran twice
    for line, count in ((3, 0), (4, 1), (None, 1)):  # where the program failed
        assert len(comparisons(source, CALLS, ErrorRecord("ProgramRuntimeError", "no", line))) == count
    kept = 'img = 1\na = get_pos(img, "red house")\nb = get_pos(img, "green tree")[0]\nanswer = a[0] < b'
    assert comparison_lines(kept) == ["a[0] < b: 6.75 < 15.75 is True"]


def page(line: str) -> Read:
    program = Program(OPEN + line, "Is it?", prompt="p")
    return Read(trace_page(answer(program=program, trace=Trace(CALLS)), PICTURES))


def test_both_points_are_named_on_one_picture_with_what_was_said_of_them() -> None:
    shown = page('answer = "yes" if x1 < x2 else "no"')
    figure = shown.element(cls="cv-compare")
    inside = [element for element in shown.elements if figure in element.inside]
    marks = [element for element in inside if "cv-mark" in element.classes]
    assert [mark.text for mark in marks] == ["red housex1 = 6.75", "green treex2 = 15.75"]
    assert [mark.attributes["style"] for mark in marks] == ["left:6.12%;top:53.12%", "left:43.62%;top:59.38%"]
    assert ["cv-below" in mark.classes for mark in marks] == [False, True]  # so that they do not meet
    assert [element.attributes["style"] for element in inside if element.tag == "i"] == ["left:28.12%", "left:65.62%"]
    (drawn,) = [element for element in inside if element.tag == "img"]
    assert drawn.attributes["alt"] == "Positions of “red house” and “green tree” in image 1, garden.png"
    assert "“red house” is farther left than “green tree”." in figure.text
    crosses = [element.attributes["style"] for element in inside if "cv-spot" in element.classes]
    assert crosses == ["left:28.12%;top:53.12%", "left:65.62%;top:59.38%"]


def test_what_is_false_says_so_and_height_reads_as_height() -> None:
    figure = page("answer = y1 < y2").element(cls="cv-compare")
    assert "11.25 < 9.75 is false" in figure.text and "“red house” is higher than “green tree”." in figure.text
    assert "farther" not in page("answer = x1 < RIGHT / 2").element(cls="cv-compare").text
