"""What a program leaves in ``answer``, as text and as plain data."""

from __future__ import annotations

import pytest
from PIL import Image as PILImage

from codevqa.core.errors import ErrorRecord
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, ImageRef
from codevqa.engine.answer_text import answer_text
from codevqa.primitives import Image

PICTURE = Image(2, load_picture(PILImage.new("RGB", (3, 3))))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (False, "no"),
        (0, "0"),
        (3.0, "3"),
        (0.25, "0.25"),
        (1234567.0, "1234567"),
        (1234567, "1234567"),
        (123456.789, "123456.789"),
        (0.1 + 0.2, "0.3"),
        (1e-7, "1e-07"),
        (1e300, "1e+300"),
        ("  a dog \n", "a dog"),
        (PICTURE, "image 2"),
        ([PICTURE, "red", True, 2.0], "image 2, red, yes, 2"),
        (["red", "", None, " "], "red"),
        (("a", ["b", "c"]), "a, b, c"),
        ({"red": 2, "wet": True}, "red: 2, wet: yes"),
    ],
)
def test_answer_text(value: object, text: str) -> None:
    assert answer_text(value) == text


def test_a_call_as_one_line() -> None:
    given = {"img": ImageRef(1), "x": 2.50}
    assert str(Call(1, "f", given, [1.0, "a", ImageRef(2)], 0.1)) == "f(image 1, 2.5) -> [1, 'a', image 2]"
    failed = Call(1, "f", given, None, 0.1, error=ErrorRecord("ModelError", "down", 3))
    assert str(failed) == "f(image 1, 2.5) -> failed: down"
