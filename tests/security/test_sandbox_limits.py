"""What a program may use, and what may cross the boundary: each probe is one program and how it ends."""

import asyncio
import contextlib
import gc
import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest
from engine_kit import engine
from sandbox_kit import IMAGES, LIMITS, PRIMITIVES, Kit, saying

from codevqa import CodeVQA, Limits, Settings
from codevqa.core.errors import (
    ProgramAnswerError,
    ProgramError,
    ProgramLimitError,
    ProgramRuntimeError,
    ProgramSyntaxError,
)
from codevqa.sandbox import Sandbox
from codevqa.sandbox.rewrite import rewrite

# ruff: noqa: E501 -- a probe reads best on one line


Args = tuple[Any, ...]
SLACK = 15
"""Seconds beyond a limit: of a machine that does more than this."""

# -- resources ---------------------------------------------------------------------------------------------------------

EXHAUSTING = {
    "endless loop that catches": "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "in a range of strings": "answer = 'a' in iter(range(10**18))",
    "doubling string": "a = 'a'\nwhile True:\n    a += a",
    "power": "answer = 2 ** 10 ** 10",
    "print flood": "while True:\n    print('a' * 1000)",
    "f-string width": "answer = f'{1:1000000000}'",
    "join": "answer = ('a' * 10**5).join(['b'] * 10**5)",
    "endless count": "import itertools\nanswer = list(itertools.count())",
    "files opened in vain": "while True:\n    try:\n        open('/tmp/a', 'w')\n    except PermissionError:\n        pass",
    "asking the host for names": "while True:\n    try:\n        nothing\n    except NameError:\n        pass",
    "sleeps": "import time\nwhile True:\n    time.sleep(1000)",
}


@pytest.mark.parametrize("probe", EXHAUSTING)
def test_exhausting_programs_hit_a_limit(kit: Kit, probe: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ProgramLimitError):
        kit.value(EXHAUSTING[probe])
    assert time.perf_counter() - started < LIMITS.seconds + SLACK
    assert kit.value("answer = 1") == 1


@pytest.mark.parametrize(
    "error",
    [
        "TimeoutError('time limit exceeded')",
        "MemoryError('memory limit exceeded: 2 > 1 bytes')",
        "RecursionError('maximum recursion depth exceeded')",
        "RuntimeError('suspension limit exceeded')",
    ],
)
def test_what_a_program_raises_is_not_told_as_a_limit(kit: Kit, error: str) -> None:
    with pytest.raises(ProgramRuntimeError, match=error.split("(")[0]):
        kit.value(f"x = 1\ndef f():\n    raise {error}\nf()")


def test_what_a_program_says_in_an_error_is_one_short_line(kit: Kit) -> None:
    with pytest.raises(ProgramRuntimeError, match="ValueError: said said") as caught:
        kit.value("x = 1\ndef f():\n    raise ValueError('said\\n' * 10**5)\nf()")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


BOUNDED = {
    # Quick to refuse or quick to run: either way it ends well within the limits.
    "int of many digits": "answer = int('9' * 10**6)",
    "nested parentheses": "answer = " + "(" * 10**4 + "1" + ")" * 10**4,
    "unary minus": "answer = " + "-" * 10**4 + "1",
    "additions": "answer = " + "1 + " * 10**4 + "1",
    "nested ifs": "".join("\t" * n + "if 1:\n" for n in range(300)) + "\t" * 300 + "answer = 1",
    "big literal": "answer = len([" + "1," * 30_000 + "])",
    "catastrophic regex": "import re\nanswer = re.match('(a+)+$', 'a' * 40 + 'b') is None",
    "colliding keys": "answer = len({(2**61 - 1) * n: n for n in range(2000)})",
}


@pytest.mark.parametrize("probe", BOUNDED)
@pytest.mark.parametrize("step", ["check", "run"])
def test_bounded(kit: Kit, probe: str, step: str) -> None:
    started = time.perf_counter()
    with contextlib.suppress(ProgramError):
        kit.check(BOUNDED[probe]) if step == "check" else kit.value(BOUNDED[probe])
    assert time.perf_counter() - started < LIMITS.seconds + SLACK
    assert kit.value("answer = 1") == 1


def test_a_long_program_is_not_rewritten_for_minutes() -> None:
    line = "x = any((last := i) for i in a)\n"
    assert rewrite(line, PRIMITIVES).source != line
    started = time.perf_counter()
    assert rewrite(line * 600, PRIMITIVES).source == line * 600
    assert time.perf_counter() - started < SLACK


def test_flood_of_calls_cannot_be_swallowed(kit: Kit) -> None:
    calls = 0

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        nonlocal calls
        calls += 1
        return "a"

    source = "x = 1\nwhile True:\n    try:\n        query(images[0], 'a')\n    except BaseException:\n        pass"
    with pytest.raises(ProgramLimitError, match="50 calls") as caught:
        kit.value(source, host)
    assert calls == LIMITS.calls
    assert caught.value.line == 4
    calls = 0
    with pytest.raises(ProgramLimitError, match="150 calls"):  # thirty pictures want three times as many
        kit.runner.run(kit.box.run(source, host, images=IMAGES * 10))
    assert calls == 3 * LIMITS.calls


def test_a_model_that_hangs_is_given_up_and_a_slow_one_is_not() -> None:
    async def slow(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        await asyncio.sleep(1)
        return "a"

    async def main() -> None:
        limits = Limits(seconds=1, wall_seconds=1.5, model_seconds=2.7)
        async with Sandbox(PRIMITIVES, limits, workers=1) as box:
            source = "for i in images[:{}]:\n    query(i, 'a')\nanswer = 1"
            outcome = await box.run(source.format(2), slow, images=IMAGES)  # waits longer than it may work
            assert outcome.value == 1 and outcome.seconds < 1
            with pytest.raises(ProgramLimitError, match=r"waited for models for more than 2\.7 seconds") as caught:
                await box.run(source.format(3), slow, images=IMAGES)
            assert caught.value.line == 2
            assert (await box.run("answer = 2", slow)).value == 2

    asyncio.run(main())


def test_the_wall_clock_runs_while_the_program_works() -> None:
    async def main() -> None:
        quick = saying("a")
        async with Sandbox(PRIMITIVES, Limits(seconds=20, wall_seconds=1.5), workers=1) as box:
            with pytest.raises(ProgramLimitError, match=r"longer than 1\.5 seconds, models left out") as caught:
                await box.run("print('so far')\nquery(images[0], 'a')\nwhile True:\n    pass", quick, images=IMAGES)
            assert (caught.value.line, caught.value.printed) == (2, "so far\n") and caught.value.seconds < 1.5
            assert (await box.run("answer = 2", quick)).value == 2

    asyncio.run(main())


def test_computing_time_adds_up_over_calls(kit: Kit) -> None:
    source = "while True:\n    for _ in range(2 * 10**5):\n        pass\n    query(images[0], 'a')"
    started = time.perf_counter()
    with pytest.raises(ProgramLimitError):
        kit.value(source)
    assert time.perf_counter() - started < LIMITS.seconds + SLACK


# -- boundary and return channel ---------------------------------------------------------------------------------------

UNUSABLE = {
    "self-containing list": "answer = [1]\nanswer.append(answer)",
    "nan": "answer = float('nan')",
    "huge int": "answer = 10**4000",
    "long string": "answer = 'a' * 10**6",
    "long string that exceeds the frame": "answer = 'a' * (50 << 20)",
    "many values": "answer = [1] * 60_000",
    "deep list": "answer = []\nfor _ in range(100_000):\n    answer = [answer]",
    "shared list": "answer = []\nfor _ in range(60):\n    answer = [answer, answer]",
    "own class with a looping repr": "class A:\n    def __repr__(self):\n        while True:\n            pass\nanswer = A()",
    "own class posing as str": "class str2:\n    pass\nanswer = str2()",
    "nested function": "answer = [1, (2, {'a': lambda: 1})]",
    "error": "try:\n    raise KeyError('a')\nexcept KeyError as e:\n    answer = e",
    "set": "answer = {1, 2}",
    "class": "answer = Image",
    "coroutine": "async def f():\n    pass\nanswer = f()",
    "check rebound, many values": "__answer__ = lambda *a: ''\nanswer = [1] * 60_000",
    "check rebound, deep list": "__answer__ = lambda *a: ''\nanswer = []\nfor _ in range(30):\n    answer = [answer]",
    "check rebound, function": "__answer__ = lambda *a: ''\nclass A:\n    pass\nanswer = A()",
    "check rebound to loop": "def f(*a):\n    while True:\n        pass\n__answer__ = f\nanswer = 1",
}


@pytest.mark.parametrize("probe", UNUSABLE)
def test_unusable_answers(kit: Kit, probe: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    with pytest.raises(ProgramError) as caught:
        kit.value(UNUSABLE[probe])
    assert isinstance(caught.value, ProgramAnswerError | ProgramLimitError | ProgramRuntimeError)
    assert time.perf_counter() - started < 2 * LIMITS.seconds + SLACK
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10
    gc.collect()
    assert kit.value("answer = 1") == 1


@pytest.mark.parametrize("source", [UNUSABLE["shared list"], "answer = []\nanswer.append(answer)"])
def test_an_answer_without_end_is_told_as_one_of_too_many_values(kit: Kit, source: str) -> None:
    with pytest.raises(ProgramAnswerError, match="more than 50,000 values"):
        kit.value(source)


def test_answers_are_clean_text(kit: Kit) -> None:
    answer = kit.value("answer = 'a\\x00b\\ud800c'")
    assert answer == answer.encode().decode()
    assert "\0" not in answer


def test_the_answer_is_a_copy_of_exact_types(kit: Kit) -> None:
    answer = kit.value("answer = [1, True, 1.5, 'a', None, (images[1], {'k': [images[0]]})]")
    assert [type(item) for item in answer] == [int, bool, float, str, type(None), tuple]
    assert answer[5][0] is IMAGES[1]
    assert answer[5][1]["k"][0] is IMAGES[0]


HOSTILE_ARGUMENTS = {
    "long question": "query(images[0], 'a' * 10**6)",
    "NUL": "query(images[0], 'a\\x00b')",
    "path for image": "query('/etc/passwd', 'a')",
    "own class for image": "class Image:\n    width = 1\nquery(Image(), 'a')",
    "function for image": "query(lambda: 1, 'a')",
    "deep list": "a = []\nfor _ in range(10**5):\n    a = [a]\nquery(a, 'a')",
    "shared list": "a = []\nfor _ in range(60):\n    a = [a, a]\nfind_matching_image(a, 'a')",
    "self-containing list": "a = []\na.append(a)\nfind_matching_image(a, 'a')",
    "keyword flood": "query(images[0], 'a', **{'k' + str(n): n for n in range(10**4)})",
}


@pytest.mark.parametrize("probe", HOSTILE_ARGUMENTS)
def test_hostile_arguments_are_refused_in_the_program(kit: Kit, probe: str) -> None:
    started = time.perf_counter()
    with pytest.raises(ProgramRuntimeError, match=r"TypeError|ValueError"):
        kit.value(HOSTILE_ARGUMENTS[probe])
    assert time.perf_counter() - started < LIMITS.seconds + SLACK


@pytest.mark.parametrize(
    "call",
    ["answering(1)", "__call__(1)", "images[0].query(1)", "images[0].__init__(1)", "Image.query(images[0], 'a')"],
)
def test_what_is_outside_the_vocabulary_never_reaches_the_host(kit: Kit, call: str) -> None:
    with pytest.raises(ProgramRuntimeError):
        kit.value(f"answer = {call}", saying(AssertionError(call)))


@pytest.mark.parametrize(("source", "says"), [("answer = 1\0", "NUL"), ("answer = '\ud800'", "half a surrogate pair")])
def test_sources_that_are_no_text(kit: Kit, source: str, says: str) -> None:
    with pytest.raises(ProgramSyntaxError, match=says):
        kit.value(source)
    with pytest.raises(ProgramSyntaxError, match=says):
        kit.check(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("type = lambda given: str\nanswer = len", None),
        ("str = query(images[0], 'a')\nanswer = str", "a 1"),
        ("answer = [images[1], 'a']", [IMAGES[1], "a"]),
        ("answer = images[0]", IMAGES[0]),
        ("answer = 'before'\nreturn 'after'", "before"),
        ("if True:\n    answer = 'a'\n    ", "a"),
        ("x = 1", None),
        ("answer = len", None),
    ],
)
def test_an_answer_is_read_however_the_program_leaves_it(kit: Kit, source: str, expected: object) -> None:
    if expected is None:
        with pytest.raises(ProgramAnswerError):
            kit.value(source)
    else:
        value = kit.value(source)
        assert value == expected and type(value) is type(expected)


TOO_MUCH = {
    "seconds": ("while True:\n    pass\nanswer = 1", "computed longer than 2 seconds"),
    "memory": ("answer = len('a' * (65 << 20))", "more than 67,108,864 bytes of memory"),
    "calls": ("while True:\n    answer = get_pos(img, 'a')", "more than 200 calls"),
    "output": ("print('a' * (65 << 10))\nanswer = 1", "printed more than 65,536 bytes"),
    "source": ("#" * (65 << 10) + "\nanswer = 1", "the limit is 65,536"),
    "recursion": ("def f(n):\n    return f(n - 1) if n else 0\nanswer = f(250)", "itself more than 200 deep"),
}


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with engine(settings=Settings()) as vqa:
        yield vqa


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit", TOO_MUCH)
def test_the_limits_are_these_where_nothing_else_is_said(vqa: CodeVQA, limit: str) -> None:
    picture = IMAGES[0].picture
    source, says = TOO_MUCH[limit]
    with pytest.raises(ProgramLimitError, match=says):
        vqa.run(picture, source)
