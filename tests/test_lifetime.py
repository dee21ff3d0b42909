"""The life of an engine: whatever ends it, or is raised in it, every caller hears so, and nothing stays behind."""

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engine_kit import RED, engine, forked, held

from codevqa import CodeVQA, QuerySettings, Settings, primitive
from codevqa.core.errors import EngineClosedError, InputError, ModelError, ProgramRuntimeError
from codevqa.core.events import Failed

SETTINGS = Settings(query=QuerySettings(captions=2, patches=5), workers=8)


class Panic(BaseException):
    """As libraries in Rust raise."""


RAISED: dict[str, BaseException] = {
    "StopIteration": StopIteration("a"),
    "StopAsyncIteration": StopAsyncIteration("a"),
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "CancelledError": asyncio.CancelledError(),
    "GeneratorExit": GeneratorExit(),
    "Panic": Panic("odd"),
    "BaseExceptionGroup": BaseExceptionGroup("several", [SystemExit(2)]),
}


def throw(name: str) -> str:
    """Raises."""
    raise RAISED[name]


async def throw_async(name: str) -> str:
    """Raises."""
    raise RAISED[name]


PRIMITIVES = [primitive(throw), primitive(throw_async), primitive(name="throw_ahead", ahead=True)(throw_async)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("primitive", [item.name for item in PRIMITIVES])
def test_whatever_a_primitive_raises_fails_its_program_alone(primitive: str) -> None:
    with engine("answer = 1", primitives=PRIMITIVES) as vqa:
        for name in RAISED:
            with pytest.raises(ProgramRuntimeError, match=rf"line 1: {primitive}\(\) failed") as caught:
                vqa.run(RED, f"answer = {primitive}({name!r})\nagain = {primitive}({name!r})")
            assert caught.value.answer is not None
            (call,) = caught.value.answer.trace.calls
            assert call.error is not None and name in f"{call.error.type} {call.error.message}"
            assert vqa.run(RED, "answer = 1").text == "1"


def test_a_primitive_that_is_closed_at_work_ends_as_any_coroutine() -> None:
    async def rest() -> str:
        """Waits."""
        await asyncio.sleep(60)
        return ""

    async def begin() -> Any:
        call = primitive(rest).call(None, {})

        async def step() -> None:
            call.send(None)

        await asyncio.create_task(step())
        return call

    asyncio.run(begin()).close()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", RAISED)
def test_whatever_a_model_raises_is_a_model_error(name: str) -> None:
    def fail(_: object) -> str:
        raise RAISED[name]

    with engine(fail) as vqa:
        for _ in range(2):
            with pytest.raises(ModelError, match=name):
                vqa.ask(RED, "Is it red?")


def ask_without_end(vqa: CodeVQA, way: str, name: str) -> None:
    """Asks in one way, each time something new, until that raises."""

    async def one(question: str) -> None:
        await vqa.ask_async(RED, question)

    for number in range(10**6):
        question = f"Is it {name} {number}?"
        if way == "ask":
            vqa.ask(RED, question)
        elif way == "ask_async":
            asyncio.run(one(question))
        elif way == "ask_many":
            vqa.ask_many([(RED, f"{question} {more}") for more in range(9)])
        else:
            *_, last = vqa.watch(RED, question)
            if isinstance(last, Failed):
                assert last.error.type == "EngineClosedError"


def no_more_than(before: tuple[set[str], int, int]) -> bool:
    """Whether nothing is held that was not before. What an earlier test left behind may end meanwhile."""
    return all(now <= was for now, was in zip(held(), before, strict=True))  # type: ignore[operator]


@pytest.mark.timeout(90)
@pytest.mark.skipif(sys.platform != "linux", reason="lists children as Linux does")
def test_closing_in_the_midst_tells_every_caller_and_leaves_nothing() -> None:
    ways = ("ask", "ask_async", "ask_many", "watch")
    ends: Counter[str] = Counter()
    before = held()

    def caller(vqa: CodeVQA, way: str) -> None:
        try:
            ask_without_end(vqa, way, threading.current_thread().name)
        except BaseException as error:  # noqa: BLE001 - of any kind: they are counted
            ends[type(error).__name__] += 1

    for trial in range(6):
        with engine("answer = query(img, 'Is it a?') + query(img, 'Is it b?')", settings=SETTINGS) as vqa:
            callers = [threading.Thread(target=caller, args=(vqa, way), daemon=True) for way in ways * 2]
            closers = [threading.Thread(target=vqa.close, daemon=True) for _ in range(3)]
            for thread in callers:
                thread.start()
            time.sleep(trial * 0.05)
            for thread in closers:
                thread.start()
            for thread in (*closers, *callers):
                thread.join(30)
                assert not thread.is_alive(), "it hangs"
    assert ends == {"EngineClosedError": 6 * len(ways) * 2}
    gc.collect()
    assert no_more_than(before), (held(), before)


def dropped(engines: int) -> None:
    for _ in range(engines):
        kept: list[CodeVQA] = []

        @primitive
        def look(text: str) -> str:
            """Holds the engine that it belongs to."""
            return f"{text} {len(kept)}"  # noqa: B023 - a reference to it is what matters

        kept.append(engine("answer = look('a')", settings=SETTINGS, primitives=[look]))
        assert kept[0].ask(RED, "What is it?").text == "a 1"


@pytest.mark.skipif(sys.platform != "linux", reason="lists children as Linux does")
def test_engines_that_nobody_holds_close() -> None:
    before = held()
    dropped(3)
    until = time.monotonic() + 20
    while not no_more_than(before):
        assert time.monotonic() < until, [thread.name for thread in threading.enumerate()]
        gc.collect()


def test_what_is_under_way_keeps_its_engine() -> None:
    watch = engine().watch(RED, "Is it red?")
    asking, running = engine().ask_async(RED, "a?"), engine().run_async(RED, "answer = 1")
    stream = engine().ask_stream([(RED, "Is it red?")])
    gc.collect()
    assert [type(event).__name__ for event in watch][-1] == "Answered"
    assert (asyncio.run(asking).text, asyncio.run(running).text, next(stream)[1].text) == ("yes", "1", "yes")


used: list[CodeVQA] = []
USES: dict[str, Callable[[CodeVQA], object]] = {
    "ask": lambda vqa: vqa.ask(RED, "Is it red?"),
    "ask_many": lambda vqa: vqa.ask_many([(RED, "Is it red?")]),
    "watch": lambda vqa: list(vqa.watch(RED, "Is it red?")),
    "run": lambda vqa: vqa.run(RED, "answer = 1"),
    "close": lambda vqa: vqa.close(),
}


@primitive
def use(way: str, number: int) -> str:
    """Uses the engine that runs it."""
    return str(USES[way](used[number]))


@primitive
async def use_async(way: str, number: int) -> str:
    """Uses the engine that runs it."""
    return str(await used[number].ask_async(RED, "Is it red?") if way == "ask_async" else USES[way](used[number]))


@pytest.mark.timeout(60)
def test_a_primitive_cannot_ask_its_own_engine_but_may_another_and_may_close() -> None:
    with engine("answer = query(img, 'a?')", primitives=[use, use_async]) as vqa, engine("") as other:
        used[:] = [vqa, other]
        asked = [f"{name}({way!r}, 0)" for name in ("use", "use_async") for way in list(USES)[:-1]]
        programs = [*asked, "use_async('ask_async', 0)"] * 3
        with ThreadPoolExecutor(len(programs)) as threads:  # more at once than there are workers
            futures = [threads.submit(vqa.run, RED, f"answer = {program}") for program in programs]
            errors = [future.exception(30) for future in futures]
        assert [type(error) for error in errors] == [InputError] * len(programs)
        assert "a second engine" in str(errors[0])
        assert vqa.run(RED, "answer = use('run', 1)").text == "1"
        with pytest.raises(EngineClosedError):
            vqa.run(RED, "answer = use('close', 0) + query(img, 'a?')")
        vqa.close()
        used.clear()


@pytest.mark.timeout(120)
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs a fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_an_engine_says_that_it_does_not_survive_a_fork() -> None:
    def fresh() -> str:
        with engine("answer = query(img, 'a?')") as vqa:
            return vqa.ask(RED, "Is it red?").text

    with engine("answer = query(img, 'a?')") as vqa:
        assert vqa.ask(RED, "Is it red?").text == "yes"
        uses = [fresh, lambda: vqa.prompt("Is it red?"), lambda: asyncio.run(vqa.ask_async(RED, "Is it red?"))]
        for work in (*uses, *(lambda way=way: way(vqa) for way in list(USES.values())[:-1])):
            assert 'get_context("spawn")' in forked(work)
        assert forked(vqa.close) == "None"
        assert vqa.ask(RED, "Is it wet?").text == "yes", "the child's end is none of the parent's"


FRESH = """
import multiprocessing, sys
sys.path.insert(0, {tests!r})
from engine_kit import RED, engine
def child():
    with engine("answer = query(img, 'a?')") as vqa:
        sys.exit(vqa.ask(RED, "Is it red?").text != "yes")
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join(30)
sys.exit(process.exitcode)
"""
LEFT = """
import atexit, sys
sys.path.insert(0, {tests!r})
from engine_kit import RED, engine
vqa = engine()
vqa.ask(RED, "Is it red?")
watch = vqa.watch(RED, "Is it wet?")
atexit.register(vqa.close) if {close} else None
"""


@pytest.mark.parametrize("script", [FRESH, LEFT.replace("{close}", "0"), LEFT.replace("{close}", "1")])
def test_processes_with_engines_end_well(script: str) -> None:
    script = script.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
