"""The check before a run: it finds what must fail, lets pass what may work, and runs nothing."""

# ruff: noqa: E501 -- a program reads best on one line

import pytest
from sandbox_kit import Kit

from codevqa.core.errors import ProgramError, ProgramSyntaxError, ProgramTypeError, UnsetAnswerError


@pytest.mark.parametrize(
    ("source", "kind", "line", "text"),
    [
        ("x = 1\nanswer = query(img)", ProgramTypeError, 2, "question"),
        ("x = 1\nanswer = query(img, 3)", ProgramTypeError, 2, "Expected 'str'"),
        ("answer = query(images, 'a')", ProgramTypeError, 1, "Expected 'Image'"),
        ("answer = query(img, 'a', 'b')", ProgramTypeError, 1, "Too many"),
        ("answer = query(img, text='a')", ProgramTypeError, 1, "text"),
        ("x = 1\nanswer = find_dog(img)", ProgramTypeError, 2, "find_dog"),
        ("answer = yes", ProgramTypeError, 1, "yes"),
        ("answer = img.pixels", ProgramTypeError, 1, "pixels"),
        ("answer = query(img, 'a') > 3", ProgramTypeError, 1, "not supported"),
        ("answer = get_pos(img, 'a').x", ProgramTypeError, 1, "has no attribute"),
        ("a, b, c = get_pos(img, 'x')\nanswer = a", ProgramTypeError, 1, "unpack"),
        ("import numpy as np\nimport torch\nanswer = np.zeros(3)", ProgramTypeError, 1, "numpy"),
        ("x = 1\nanswer = (1 +", ProgramSyntaxError, 2, ""),
        ("x = 1\nif x:\nanswer = 1", ProgramSyntaxError, 3, ""),
        ("answer = 1\nx = '''", ProgramSyntaxError, 2, ""),
        ("answer = open('/etc/passwd').read()", ProgramTypeError, 1, "open"),
        ("x = 1", UnsetAnswerError, None, "never sets answer"),
    ],
)
def test_check_finds(kit: Kit, source: str, kind: type[ProgramError], line: int | None, text: str) -> None:
    with pytest.raises(kind) as caught:
        kit.check(source)
    assert caught.value.line == line
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        'answer = "yes" if query(img, "is it?") == "yes" else "no"',
        'n = query(img, "how many?")\nn = int(n)\nn = n > 3\nanswer = "yes" if n else "no"',
        "img = 3\nimages = 'a'\nLEFT = None\nanswer = img + len(images)",
        'best = None\nfor i in images:\n    if query(i, "a") == "yes":\n        best = i\nanswer = query(best, "what?")',
        'answer = query(maybe_image(images), "a")',
        "answer = maybe_image(images).width",
        'x = None\nif img.width > 3:\n    x = "a"\nanswer = x.upper()',
        'import re\nanswer = re.match("a", query(img, "b")).group(0)',
        "xs = []\nxs.append(1)\nxs.append('a')\nanswer = xs[0] + 1",
        "a = 1 if img.width else 'x'\nanswer = a + 1",
        "x: str = 3\nanswer: int = 'a'",
        "def f(a: int) -> str:\n    return a\nanswer = f(3)",
        "if img.width:\n    w = 1\nanswer = w",
        "answer = list(filter(lambda i: query(i, 'a') == 'yes', images))",
        "answer = getattr(img, 'width') if hasattr(img, 'width') else 0",
        "def f(query):\n    return query\nanswer = f(1)",
        "answer = 0\nfor i in images:\n    answer += 1\nanswer = str(answer)",
        "def f():\n    global answer\n    answer = 1\nf()",
        "while img:\n    pass\nanswer = 1",  # for nothing of it is run
    ],
)
def test_check_lets_pass_what_may_work(kit: Kit, source: str) -> None:
    kit.check(source)
