"""The sandbox: what programs can do, how they are checked, and how failures come back."""

# ruff: noqa: E501 -- a program reads best on one line

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from sandbox_kit import IMAGES, LIMITS, PRIMITIVES, Kit, answering

from codevqa.core.errors import (
    CodeVQAError,
    ModelError,
    ProgramAnswerError,
    ProgramError,
    ProgramLimitError,
    ProgramRuntimeError,
    ProgramSyntaxError,
    ProgramTypeError,
)
from codevqa.primitives import Image
from codevqa.sandbox import Limits, Sandbox
from codevqa.sandbox.run import Run

Args = tuple[Any, ...]


# -- forms that must work ----------------------------------------------------------------------------------------------

FORMS = {
    "plain": ('img = images[0]\nanswer = query(img, "a")', "a 1"),
    "keyword": ('answer = query(question="a", img=images[1])', "a 2"),
    "comprehension": ('answer = [query(i, "a") for i in images]', ["a 1", "a 2", "a 3"]),
    "dict comprehension": ('answer = {n: query(i, "a") for n, i in enumerate(images)}', {0: "a 1", 1: "a 2", 2: "a 3"}),
    "lambda": ('ask = lambda i: query(i, "a")\nanswer = ask(images[2])', "a 3"),
    "def": ('def ask(i):\n    return query(i, "a")\nanswer = ask(images[2])', "a 3"),
    "annotated def": (
        "from typing import List\ndef f(x: List[Image]) -> bool:\n    return True\nanswer = f(images)",
        True,
    ),
    "closure": (
        'def make(q):\n    def ask(i):\n        return query(i, q)\n    return ask\nanswer = make("b")(images[0])',
        "b 1",
    ),
    "recursion": (
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nanswer = f(20)",
        20,
    ),
    "sorted": ('answer = sorted(images, key=lambda i: -get_pos(i, "a")[0])[0]', IMAGES[2]),
    "sorted reverse is stable": (
        'answer = sorted(["b1", "a1", "b2"], key=lambda s: s[0], reverse=True)',
        ["b1", "b2", "a1"],
    ),
    "sorted by a host call": ('answer = sorted(images, key=lambda i: query(i, "z"), reverse=True)[0]', IMAGES[2]),
    "max": ('answer = max(images, key=lambda i: get_pos(i, "a")[0])', IMAGES[2]),
    "min": ('answer = min(images, key=lambda i: get_pos(i, "a")[1])', IMAGES[2]),
    "max plain": ("answer = [max(1, 3, 2), max([1, 3]), max([], default=7), min(4, 2)]", [3, 3, 7, 2]),
    "map": ('answer = list(map(lambda i: query(i, "a"), images))', ["a 1", "a 2", "a 3"]),
    "map of two": ('answer = list(map(query, images, ["a", "b", "c"]))', ["a 1", "b 2", "c 3"]),
    "filter": ('answer = len(list(filter(lambda i: query(i, "a") != "a 1", images)))', 2),
    "generator in any": ('answer = any(query(i, "a") == "a 2" for i in images)', True),
    "generator in all": ('answer = all(query(i, "a") == "a 2" for i in images)', False),
    "generator in sum": ('answer = sum(query(i, "a") == "a 2" for i in images)', 1),
    "next": ('answer = next(i for i in images if query(i, "a") == "a 2")', IMAGES[1]),
    "next with default": ('answer = next((i for i in images if query(i, "a") == "?"), "none")', "none"),
    "next of an iterator": ("it = iter([1, 2])\nanswer = [next(it), next(it)]", [1, 2]),
    "reduce": ('import functools\nanswer = functools.reduce(lambda t, i: t + query(i, "a"), images, "")', "a 1a 2a 3"),
    "alias": ('ask = query\nanswer = ask(images[0], "a")', "a 1"),
    "f-string": ("answer = query(images[0], f\"is it {query(images[1], 'a')}?\")", "is it a 2? 1"),
    "counter": ("from collections import Counter\nanswer = Counter([1, 1, 2]).most_common(1)[0][0]", 1),
    "class": ('class A:\n    def __init__(self, i):\n        self.v = query(i, "a")\nanswer = A(images[0]).v', "a 1"),
    "match": ('match query(images[0], "a"):\n    case "a 1":\n        answer = 1\n    case _:\n        answer = 2', 1),
    "try": ('try:\n    answer = int(query(images[0], "a"))\nexcept ValueError:\n    answer = 0', 0),
    "unpacking": (
        'x, y = get_pos(images[0], "a")\nanswer = [x, y, x < RIGHT / 2, y > BOTTOM]',
        [1.0, 23.0, True, True],
    ),
    "constants": ("answer = [LEFT, BOTTOM, RIGHT, TOP]", [0, 0, 24, 24]),
    "size": ("answer = [images[0].width, images[0].height]", [8, 6]),
    "image found again": ('answer = images.index(find_matching_image(images, "a"))', 2),
    "image equality": (
        "answer = [images[0] == images[0], images[0] == images[1], images[1] in images]",
        [True, False, True],
    ),
    "isinstance": ("answer = [isinstance(images[0], Image), isinstance(1, Image)]", [True, False]),
    "none result": ("answer = maybe_image([]) is None", True),
    "rebinding": ('x = query(images[0], "a")\nx = len(x)\nx = x > 2\nanswer = x', True),
    "walrus": ('answer = a if (a := query(images[0], "a")) else "no"', "a 1"),
    "print": ('print("x")\nanswer = 1', 1),
    "tuple answer": ("answer = (1, 'a', None, 2.5)", (1, "a", None, 2.5)),
}


@pytest.mark.parametrize("form", FORMS)
def test_form_works(kit: Kit, form: str) -> None:
    source, expected = FORMS[form]
    kit.check(source)
    assert kit.value(source) == expected


def test_one_image_is_also_called_img(kit: Kit) -> None:
    outcome = kit.runner.run(kit.box.run('answer = query(img, "a")', answering, images=IMAGES[1:2]))
    assert outcome.value == "a 2"
    with pytest.raises(ProgramRuntimeError, match="NameError"):
        kit.value('answer = query(img, "a")')


def test_given_globals(kit: Kit) -> None:
    outcome = kit.run("answer = [threshold * 2, other.width]", given={"threshold": 3, "other": IMAGES[0]})
    assert outcome.value == [6, 8]
    kit.runner.run(kit.box.check("answer = threshold * 2", given={"threshold": "int"}))
    with pytest.raises(ProgramTypeError, match="threshold"):
        kit.check("answer = threshold * 2")


def test_printed_text_is_kept(kit: Kit) -> None:
    assert kit.run('print("a", 1)\nprint("b")\nanswer = 1').printed == "a 1\nb\n"


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


def test_images_made_by_the_host_differ_from_each_other(kit: Kit) -> None:
    crops = [Image(1, IMAGES[0].picture), Image(1, IMAGES[0].picture)]

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        return crops

    assert kit.value("a, b = query(images[0], 'a')\nanswer = [a == b, a == a, [a, b].index(b)]", host) == [
        False,
        True,
        1,
    ]
    assert kit.value("a, b = query(images[0], 'a')\nanswer = b", host) is crops[1]


# -- the answer --------------------------------------------------------------------------------------------------------


def test_missing_answer(kit: Kit) -> None:
    with pytest.raises(ProgramAnswerError, match="without setting answer"):
        kit.value("x = 1")
    with pytest.raises(ProgramAnswerError, match="never sets answer"):
        kit.check("x = 1")


@pytest.mark.parametrize(
    "source",
    [
        "answer = lambda: 1",
        "answer = query",
        "answer = print",
        "class A:\n    pass\nanswer = A()",
        "answer = Image",
        "import math\nanswer = math",
        "answer = range(3)",
        "answer = {1, 2}",
        "answer = b'a'",
        "answer = 1j",
        "answer = ...",
        "async def f():\n    pass\nanswer = f()",
        "answer = {'a': 1}.items()",
        "answer = [1, (2, {'a': lambda: 1})]",
        "import datetime\nanswer = datetime.date(2020, 1, 1)",
        "import re\nanswer = re.match('a', 'a')",
        "try:\n    raise KeyError('a')\nexcept KeyError as e:\n    answer = e",
        "from decimal import Decimal\nanswer = Decimal(1)",
    ],
)
def test_answer_must_be_plain_data(kit: Kit, source: str) -> None:
    with pytest.raises(ProgramAnswerError, match="answer holds"):
        kit.value(source)


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "kind", "line", "text"),
    [
        ("x = 1\nanswer = int('two')", ProgramRuntimeError, 2, "ValueError: invalid literal"),
        ("x = 1\n\ndef f():\n    return [1][5]\n\nanswer = f()", ProgramRuntimeError, 4, "IndexError"),
        ("answer = sorted(images,\n  key=lambda i: int('x'))", ProgramRuntimeError, 2, "ValueError"),
        ("answer = max([])", ProgramRuntimeError, 1, "ValueError"),
        ("x = 1\nanswer = nothing", ProgramRuntimeError, 2, "NameError: name 'nothing' is not defined"),
        ("x = 1\nanswer = nothing(1)", ProgramRuntimeError, 2, "NameError: name 'nothing' is not defined"),
        ("x = 1\nanswer = (1 +", ProgramSyntaxError, 2, ""),
        ("x = 1\r\nanswer = (1 +", ProgramSyntaxError, 2, ""),
        ("x = 1\n  answer = 1", ProgramSyntaxError, 2, ""),
        ("x = 1\nclass A(int):\n    pass\nanswer = 1", ProgramSyntaxError, 2, "class inheritance"),
        ("x = 1\nfor i in [1]:\n    yield i", ProgramSyntaxError, 3, "yield"),
        ("x = 1\nanswer = images[0].secret", ProgramRuntimeError, 2, "AttributeError"),
        ("x = 1\nanswer = images[0].show()", ProgramRuntimeError, 2, "AttributeError"),
        ("x = 1\nanswer = Image()", ProgramRuntimeError, 2, "TypeError"),
        ("x = 1\nanswer = query('a', 'b')", ProgramRuntimeError, 2, "TypeError: query() img must be Image, not str"),
        ("x = list(images)\nx.sort(key=lambda i: query(i, 'a'))", ProgramRuntimeError, 2, "inside this builtin"),
        ("x = 1\nassert x == 2, 'no'", ProgramRuntimeError, 2, "AssertionError"),
    ],
)
def test_errors_are_typed_and_carry_the_line(
    kit: Kit, source: str, kind: type[ProgramError], line: int, text: str
) -> None:
    with pytest.raises(kind) as caught:
        kit.value(source)
    assert type(caught.value) is kind
    assert caught.value.line == line
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [TypeError, ValueError, LookupError, KeyError, UnicodeError])
def test_plain_host_errors_are_raised_in_the_program(kit: Kit, kind: type[Exception]) -> None:
    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        raise kind("too dark")

    caught = kit.value("try:\n    query(images[0], 'a')\nexcept Exception as e:\n    answer = str(e)", host)
    assert "too dark" in caught
    with pytest.raises(ProgramRuntimeError, match=r"line 2: .*too dark"):
        kit.value("x = 1\nquery(images[0], 'a')", host)


CATCHING = (
    "while True:\n    try:\n        answer = query(images[0], 'a')\n    except BaseException:\n        answer = 'no'\n"
)


@pytest.mark.parametrize("error", [ModelError("the model is down"), ProgramLimitError("enough"), RuntimeError("a bug")])
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
    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        return result

    with pytest.raises(ProgramRuntimeError, match="TypeError: a program cannot hold"):
        kit.value("answer = query(images[0], 'a')", host)


# -- the check ---------------------------------------------------------------------------------------------------------


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
    ],
)
def test_check_finds(kit: Kit, source: str, kind: type[ProgramError], line: int, text: str) -> None:
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


@pytest.mark.timing
def test_check_runs_nothing(kit: Kit) -> None:
    started = time.perf_counter()
    kit.check("while True:\n    answer = query(images[0], 'a')")
    assert time.perf_counter() - started < LIMITS.seconds


@pytest.mark.timing
def test_check_is_remembered_and_its_error_is_fresh(kit: Kit) -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(ProgramTypeError) as caught:
            kit.check("answer = nothing_of_that_name")
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    assert errors[0] is not errors[1]
    kit.check("answer = 12345")
    started = time.perf_counter()
    for _ in range(100):
        kit.check("answer = 12345")
    assert time.perf_counter() - started < 0.5


# -- concurrency, cancellation, faults ---------------------------------------------------------------------------------


def test_programs_in_flight_share_the_host() -> None:
    inside = most = 0

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        inside -= 1
        return "a"

    async def main() -> list[Any]:
        async with Sandbox(PRIMITIVES, workers=16) as box:
            source = "answer = [query(i, 'a') for i in images]"
            runs = [box.run(source, host, images=IMAGES) for _ in range(64)]
            return [outcome.value for outcome in await asyncio.gather(*runs)]

    assert asyncio.run(main()) == [["a", "a", "a"]] * 64
    assert 8 <= most <= 16


def test_cancelled_runs_leave_the_pool_usable() -> None:
    async def never(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        await asyncio.sleep(60)
        return "a"

    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=5), workers=2) as box:
            for source in ("answer = query(images[0], 'a')", "while True: pass"):
                tasks = [asyncio.create_task(box.run(source, never, images=IMAGES)) for _ in range(2)]
                await asyncio.sleep(0.1)
                for task in tasks:
                    task.cancel()
                assert all(
                    isinstance(result, asyncio.CancelledError)
                    for result in await asyncio.gather(*tasks, return_exceptions=True)
                )
                done = await asyncio.gather(*[box.run("answer = 1", never) for _ in range(4)])
                assert [outcome.value for outcome in done] == [1] * 4

    started = time.perf_counter()
    asyncio.run(main())
    assert time.perf_counter() - started < 4.5


def test_cancelled_runs_never_harm_others() -> None:
    """Workers of cancelled programs are killed where they compute; the moment decides who has the worker then."""
    source = "x = 0\nfor i in range(3000):\n    x += i\nanswer = query(images[0], 'a')"

    async def main() -> list[Any]:
        chance = random.Random(0)
        async with Sandbox(PRIMITIVES, workers=3) as box:

            async def doomed() -> None:
                for _ in range(60):
                    task = asyncio.create_task(box.run(source, answering, images=IMAGES))
                    await asyncio.sleep(chance.uniform(0, 0.004))
                    task.cancel()
                    await asyncio.wait([task])
                    assert task.cancelled() or task.result().value == "a 1"

            async def healthy() -> list[Any]:
                return [(await box.run(source, answering, images=IMAGES)).value for _ in range(60)]

            results: list[Any] = await asyncio.gather(doomed(), healthy(), doomed(), healthy())
            return results

    assert asyncio.run(asyncio.wait_for(main(), 60)) == [None, ["a 1"] * 60] * 2


def test_a_worker_is_not_killed_once_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    giving_back, go_on = threading.Event(), threading.Event()

    class Session:
        worker_pid = 4_000_000

        def __enter__(self) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            giving_back.set()
            assert go_on.wait(10)

        def feed_run(self, source: str, **_: object) -> None:
            pass

        def feed_start(self, source: str, **_: object) -> None:
            raise OverflowError

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            run = Run(cast("Any", Session()), "answer = 1", answering, LIMITS, PRIMITIVES.names, executor)
            task = asyncio.create_task(run.finish(IMAGES, {}))
            assert await asyncio.to_thread(giving_back.wait, 10)
            run.kill()
            go_on.set()
            with pytest.raises(OverflowError):
                await task

    killed: list[int] = []
    monkeypatch.setattr("codevqa.sandbox.run.os.kill", lambda pid, signal: killed.append(pid))
    asyncio.run(main())
    assert killed == []


def test_a_program_cancelled_while_it_waits_leaves_its_worker_alive() -> None:
    async def never(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        called.set()
        await asyncio.sleep(60)
        return "a"

    async def main() -> None:
        async with Sandbox(PRIMITIVES, workers=1) as box:
            await box.run("answer = 1", never)
            workers = set(_workers()) - before
            assert len(workers) == 1
            task = asyncio.create_task(box.run("answer = query(images[0], 'a')", never, images=IMAGES))
            await asyncio.wait_for(called.wait(), 10)
            task.cancel()
            await asyncio.wait([task])
            assert (await box.run("answer = 2", never)).value == 2
            assert set(_workers()) - before == workers

    called = asyncio.Event()
    before = set(_workers())
    asyncio.run(main())


def test_closing_ends_programs_under_way() -> None:
    async def main() -> None:
        called = asyncio.Event()
        go_on = asyncio.Event()

        async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
            called.set()
            await go_on.wait()
            return "a"

        box = Sandbox(PRIMITIVES, Limits(seconds=60), workers=2)
        sources = ("while True: pass", "answer = query(images[0], 'a')", "answer = 'waiting for a worker'")
        tasks = [asyncio.create_task(box.run(source, host, images=IMAGES)) for source in sources]
        await asyncio.wait_for(called.wait(), 10)
        await asyncio.sleep(0.1)
        await asyncio.wait_for(box.aclose(), 5)
        go_on.set()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert [type(end) for end in ends] == [ProgramRuntimeError] * 3
        assert (await box.run("answer = 2", answering)).value == 2
        await box.aclose()

    before = set(_workers())
    asyncio.run(main())
    assert not set(_workers()) - before


def _workers() -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "monty" in line]


@pytest.mark.parametrize("during", ["host call", "computing"])
def test_killed_worker_is_typed_and_replaced(during: str) -> None:
    async def killing(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        for pid in set(_workers()) - before:
            os.kill(pid, signal.SIGKILL)
        return "a"

    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=5), workers=1) as box:
            if during == "host call":
                with pytest.raises(ProgramRuntimeError, match="process running the program died"):
                    await box.run("answer = query(images[0], 'a')", killing, images=IMAGES)
            else:
                task = asyncio.create_task(box.run("while True: pass", answering))
                await asyncio.sleep(0.2)
                await killing("", (), {}, None)
                with pytest.raises(ProgramRuntimeError, match="process running the program died"):
                    await task
            assert (await box.run("answer = 2", answering)).value == 2

    before = set(_workers())
    asyncio.run(main())


def test_stopped_worker_hits_the_limit() -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=0.2), workers=1) as box:
            task = asyncio.create_task(box.run("while True: pass", answering))
            await asyncio.sleep(0.1)
            for pid in set(_workers()) - before:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(ProgramLimitError):
                await task
            assert (await box.run("answer = 2", answering)).value == 2

    before = set(_workers())
    started = time.perf_counter()
    asyncio.run(main())
    assert time.perf_counter() - started < 10


@pytest.mark.skipif(sys.platform != "linux", reason="writes into another process's pipe through /proc")
@pytest.mark.parametrize("forged", [b"\x04\0\0\0abcd", b"\0" * 8, b"\xff" * 64, b"\0\0\0\x04abcd", b'{"a": 1}\n'])
def test_a_worker_that_answers_nonsense_is_a_typed_error_and_replaced(forged: bytes) -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=0.5), workers=1) as box:
            await box.run("answer = 1", answering)

            async def forging(name: str, args: Any, kwargs: Any, line: int | None) -> str:
                for pid in set(_workers()) - before:
                    with Path(f"/proc/{pid}/fd/1").open("wb", buffering=0) as pipe:
                        pipe.write(forged)
                return "red"

            with pytest.raises(ProgramError) as caught:
                await box.run("answer = query(images[0], 'a')", forging, images=IMAGES)
            assert type(caught.value) in (ProgramRuntimeError, ProgramLimitError)
            assert (await box.run("answer = 2", answering)).value == 2

    before = set(_workers())
    asyncio.run(asyncio.wait_for(main(), 20))


@pytest.mark.timeout(30)
def test_a_check_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, Limits(seconds=0.2), workers=1) as box:
            await box.check("answer = 1")
            for pid in set(_workers()) - before:
                os.kill(pid, signal.SIGSTOP)
            with pytest.raises(ProgramLimitError, match="static check"):
                await box.check("answer = 2")
            await box.check("answer = 2 + 1")

    monkeypatch.setattr("codevqa.sandbox.sandbox.GRACE", 0.5)
    before = set(_workers())
    asyncio.run(asyncio.wait_for(main(), 20))


def test_it_starts_by_itself_and_again_after_closing() -> None:
    async def main() -> None:
        box = Sandbox(PRIMITIVES, workers=1)
        for _ in range(2):
            assert (await box.run("answer = 1", answering)).value == 1
            await box.aclose()
        await box.aclose()

    asyncio.run(main())


ENDING = """
import asyncio, sys
sys.path.insert(0, {tests!r})
from sandbox_kit import IMAGES, PRIMITIVES, answering
from codevqa.sandbox import Sandbox
async def main():
    box = Sandbox(PRIMITIVES, workers=8)
    runs = [box.run("answer = query(images[0], 'a')", answering, images=IMAGES) for _ in range(16)]
    await asyncio.gather(*runs)
    {closing}
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("closing", ["await box.aclose()", "pass"])
def test_processes_that_end_right_after_end_well(closing: str) -> None:
    script = ENDING.format(tests=os.path.dirname(__file__), closing=closing)  # noqa: PTH120
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr


def test_every_error_is_ours(kit: Kit) -> None:
    with pytest.raises(CodeVQAError) as caught:
        kit.value("raise SystemExit(3)")
    assert isinstance(caught.value, ProgramRuntimeError)
