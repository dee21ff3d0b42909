"""The sandbox: how answers and failures come back, and the check before a run, which runs nothing."""

from typing import Any

import pytest
from sandbox_kit import IMAGES, Args, Kit, saying

from codevqa.core.errors import (
    ModelError,
    ProgramError,
    ProgramLimitError,
    ProgramRuntimeError,
    ProgramSyntaxError,
    ProgramTypeError,
    UnsetAnswerError,
)
from codevqa.primitives import Image

# ruff: noqa: E501 -- a program reads best on one line


def test_host_is_given_names_arguments_images_and_lines(kit: Kit) -> None:
    calls: list[tuple[str, Args, dict[str, Any], int | None]] = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        calls.append((name, args, kwargs, line))
        return "é"

    source = 'x = "é"\n\nanswer = query(images[1], x)\nfor i in images[:1]:\n    query(i,\n          question="b")\n'
    source += 'def f(i):\n    return query(i, "c")\nsorted(images[2:], key=f)'
    kit.run(source, host)
    assert [(name, args[1:], kwargs, line) for name, args, kwargs, line in calls] == [
        ("query", ("é",), {}, 3),
        ("query", (), {"question": "b"}, 5),
        ("query", ("c",), {}, 8),
    ]
    assert [args[0] for _, args, _, _ in calls] == [IMAGES[1], IMAGES[0], IMAGES[2]]
    assert calls[0][1][0] is IMAGES[1]


def test_images_made_by_the_host_are_equal_where_the_host_s_are(kit: Kit) -> None:
    crops = [Image(1, IMAGES[0].picture), Image(1, IMAGES[1].picture)]
    compared = "a, b = query(images[0], 'a')\nanswer = [a == b, a == a, [a, b].index(b)]"
    assert kit.value(compared, saying(crops)) == [True, True, 0]
    parts = [Image(1, IMAGES[0].picture, (0, 0, 1, 1)), Image(1, IMAGES[0].picture, (0, 0, 2, 2))]
    assert kit.value(compared, saying(parts)) == [False, True, 1]
    assert kit.value("a, b = query(images[0], 'a')\nanswer = b", saying(crops)) is crops[1]


@pytest.mark.parametrize(
    ("source", "kind", "line", "text"),
    [
        ("x = 1\nanswer = int('two')", ProgramRuntimeError, 2, "ValueError: invalid literal"),
        ("x = 1\n\ndef f():\n    return [1][5]\n\nanswer = f()", ProgramRuntimeError, 4, "IndexError"),
        ("answer = sorted(images,\n  key=lambda i: int('x'))", ProgramRuntimeError, 2, "ValueError"),
        ("x = 1\nanswer = nothing(1)", ProgramRuntimeError, 2, "NameError: name 'nothing' is not defined"),
        ("answer = query(img, 'a')", ProgramRuntimeError, 1, "NameError"),  # which of the three?
        ("x = 1\nanswer = (1 +", ProgramSyntaxError, 2, ""),
        ("x = 1\nif x:", ProgramSyntaxError, 2, ""),
        ("answer = 1 + \\", ProgramSyntaxError, 1, ""),
        ("answer = '''a", ProgramSyntaxError, 1, ""),
        ("x = 1\r\nanswer = (1 +", ProgramSyntaxError, 2, ""),
        ("x = 1\nclass A(int):\n    pass\nanswer = 1", ProgramSyntaxError, 2, "class inheritance"),
        ("x = [1]\ndel x[0]\nanswer = 1", ProgramSyntaxError, 2, "Write x.pop(key)"),
        ("x = 1\nfor i in [1]:\n    yield i", ProgramSyntaxError, 3, "yield"),
        ("x = 1\nanswer = images[0].secret", ProgramRuntimeError, 2, "AttributeError"),
        ("x = 1\nanswer = images[0].show()", ProgramRuntimeError, 2, "AttributeError"),
        ("x = 1\nanswer = Image()", ProgramRuntimeError, 2, "TypeError"),
        ("x = 1\nanswer = query('a', 'b')", ProgramRuntimeError, 2, "TypeError: query() img must be Image, not str"),
        ("import re\nx = re.compile('a')\nfrom itertools import groupby\nx = list(groupby(images, key=lambda i: query(i, 'a')))", ProgramRuntimeError, 4, "inside this builtin"),
        ("def f():\n    return 1\nx = f()\nx += f()\nanswer = [\n  1, int('two')]", ProgramRuntimeError, 6, "ValueError"),
        ("x = 1\nx += len(images)\ny = {i: 1 for i in images}\nanswer = query(\n  images[0], 3)", ProgramRuntimeError, 4, "must be str"),
        ("x = 1\ndel x\nyes = 1\nanswer = (1 +", ProgramSyntaxError, 4, ""),
    ],
)  # fmt: skip
def test_errors_are_typed_with_a_line(kit: Kit, source: str, kind: type[ProgramError], line: int, text: str) -> None:
    with pytest.raises(kind) as caught:
        kit.value(source)
    assert type(caught.value) is kind
    assert caught.value.line == line
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        *((kind("too dark"), "too dark") for kind in (TypeError, KeyError, UnicodeError)),
        (ValueError("x" * 600), "x" * 500),
        (ValueError("a\ud800b"), "a?b"),
        (ValueError("a\0b"), "a\ufffdb"),
    ],
)
def test_plain_host_errors_are_raised_in_the_program(kit: Kit, error: Exception, message: str) -> None:
    caught = "try:\n    query(images[0], 'a')\nexcept Exception as e:\n    answer = str(e)"
    assert kit.value(caught, saying(error)) == message
    with pytest.raises(ProgramRuntimeError, match=r"line 2: \w+Error: "):
        kit.value("x = 1\nquery(images[0], 'a')", saying(error))


CATCHING = (
    "while True:\n    try:\n        answer = query(images[0], 'a')\n    except BaseException:\n        answer = 'no'\n"
)


@pytest.mark.parametrize(
    "error",
    [ModelError("the model is down"), ProgramLimitError("enough"), RuntimeError("a bug"), TimeoutError("a socket")],
)
def test_other_host_errors_end_the_run_and_cannot_be_caught(kit: Kit, error: Exception) -> None:
    calls = 0

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        nonlocal calls
        calls += 1
        raise error

    with pytest.raises(type(error)) as caught:
        kit.value(CATCHING, host)
    assert caught.value is error
    assert calls == 1
    assert kit.value("answer = 1") == 1


@pytest.mark.parametrize("result", [object(), {"a": 1}, {1}, b"a", [object()]])
def test_host_results_that_are_not_plain_are_refused(kit: Kit, result: object) -> None:
    with pytest.raises(ProgramRuntimeError, match="TypeError: a program cannot hold"):
        kit.value("answer = query(images[0], 'a')", saying(result))


# ruff: noqa: E501 -- a program reads best on one line


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
