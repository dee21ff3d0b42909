"""The demo's visitors and their questions: what they share, how long they wait, what ends what they asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from service_kit import VISITOR, StubEngines, all_views, answer, asked, last_view, picture, service

from codevqa.core.answer import Answer
from codevqa.core.errors import CodeVQAError, InputError
from codevqa.core.events import Answered, Event, Writing
from codevqa.demo.live import LiveQuestion
from codevqa.demo.turn import Turn, follow
from codevqa.engine.watch import Watch

# -- visitors --------------------------------------------------------------------------------------------------------


def test_visitors_share_nothing(tmp_path: Path) -> None:
    engines = StubEngines(Answered(answer()))
    one = service(tmp_path, engines)
    for session in ("one", "other", "one"):
        asyncio.run(one.answer(asked(tmp_path), session))
    first, other, again = (options["memory"] for options in engines.options)
    assert first is again and first is not other


@pytest.mark.timeout(20)
def test_who_was_away_longest_is_forgotten_first_but_not_one_who_waits_for_an_answer(tmp_path: Path) -> None:
    engines = StubEngines(Answered(answer()))
    one = service(tmp_path, engines, visitors=2)

    async def come() -> None:
        for session in ("asks", "looks"):
            await one.answer(asked(tmp_path), session)
        engines.events = ()
        asking = asyncio.create_task(one.answer(asked(tmp_path), "asks"))
        await asyncio.sleep(0.1)
        engines.events = (Answered(answer()),)
        for session in ("new", "looks"):
            await one.answer(asked(tmp_path), session)
        assert one.stop("asks"), "it is known still"
        with pytest.raises(InputError, match="Stopped"):
            await asking

    asyncio.run(come())
    known = [options["memory"] for options in engines.options]
    assert known[2] is known[0] and known[4] is not known[1]


@pytest.mark.timeout(20)
def test_a_visitor_who_leaves_is_forgotten_and_what_runs_for_them_ends(tmp_path: Path) -> None:
    engines = StubEngines()
    one = service(tmp_path, engines)

    async def leave() -> None:
        asking = asyncio.create_task(one.answer(asked(tmp_path), VISITOR))
        await asyncio.sleep(0.1)
        one.forget(VISITOR)
        with pytest.raises(InputError, match="Stopped"):
            await asking

    asyncio.run(leave())
    assert all(watch.done for watch in engines.watches)
    engines.events = (Answered(answer()),)
    asyncio.run(one.answer(asked(tmp_path), VISITOR))
    assert engines.options[0]["memory"] is not engines.options[1]["memory"]


# -- turns -----------------------------------------------------------------------------------------------------------


def test_the_question_and_the_baseline_are_asked_with_the_visitors_own_memory(tmp_path: Path) -> None:
    engines = StubEngines(Answered(answer("blue")))
    one = service(tmp_path, engines)
    view = asyncio.run(last_view(one.serve(asked(tmp_path, question="  Is\nit? ", shots=3), VISITOR)))
    assert "blue" in view.answer and "blue" in (view.baseline or "")
    memory = one.visitor(VISITOR).memory
    assert engines.options == [
        {"question": "Is it?", "method": "codevqa", "shots": 3, "memory": memory},
        {"question": "Is it?", "method": "pnpvqa", "memory": memory},
    ]


def test_stop_ends_the_question_and_the_baseline(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines)

    async def run() -> Any:
        views = one.serve(asked(tmp_path), VISITOR)
        asyncio.get_running_loop().call_later(0.3, one.stop, VISITOR)
        return await last_view(views)

    view = asyncio.run(run())
    assert "Stopped" in view.status and "stopped" in (view.answer or "") and "stopped" in (view.baseline or "")
    assert len(engines.watches) == 2 and all(watch.done for watch in engines.watches)
    assert not one.stop(VISITOR), "nothing runs any more"
    assert not one.stop("nobody")


@pytest.mark.timeout(20)
def test_a_question_ends_when_its_time_is_up(tmp_path: Path) -> None:
    engines = StubEngines()
    one = service(tmp_path, engines, seconds=0.2)
    view = asyncio.run(last_view(one.serve(asked(tmp_path), VISITOR)))
    assert "more than 0 seconds" in view.status
    assert all(watch.done for watch in engines.watches)
    with pytest.raises(InputError, match="more than"):
        asyncio.run(one.answer(asked(tmp_path), VISITOR))
    assert engines.watches[-1].done


def test_leaving_ends_the_question(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines)

    async def leave() -> None:
        views = one.serve(asked(tmp_path), VISITOR)
        async for _ in views:
            if engines.watches:
                break
        await views.aclose()

    asyncio.run(leave())
    one.close()
    assert all(watch.done for watch in engines.watches)
    assert engines.closed


def test_a_new_question_ends_the_one_before_which_says_nothing_of_it(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines, seconds=5)

    async def both() -> Any:
        first = asyncio.create_task(last_view(one.serve(asked(tmp_path), VISITOR)))
        await asyncio.sleep(0.2)
        second = asyncio.create_task(last_view(one.serve(asked(tmp_path), VISITOR)))
        view = await first
        assert [watch.done for watch in engines.watches[:2]] == [True, True]
        one.stop(VISITOR)
        await second
        return view

    assert " data-busy " in asyncio.run(both()).status, "what is asked now is shown, not that the other was stopped"


@pytest.mark.timeout(20)
def test_questions_wait_in_line_and_are_told_how_many_are_before_them(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines, at_once=1, queue=1)
    first, second, third = ("first", "second", "third")

    async def three() -> tuple[list[Any], Any]:
        asking = asyncio.create_task(last_view(one.serve(asked(tmp_path), first)))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(all_views(one.serve(asked(tmp_path), second)))
        await asyncio.sleep(0.1)
        refused = await last_view(one.serve(asked(tmp_path), third))
        assert len(engines.watches) == 2, "the second waits"
        one.stop(first)
        await asking
        await asyncio.sleep(0.3)
        assert len(engines.watches) == 4, "its turn has come"
        one.stop(second)
        return await waiting, refused

    views, refused = asyncio.run(three())
    assert "Waiting: 1 before you" in views[0].status
    assert "server is busy: 1 questions are waiting" in refused.message


def test_stop_also_ends_the_wait(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines, at_once=1)
    other = "other"

    async def both() -> Any:
        first = asyncio.create_task(last_view(one.serve(asked(tmp_path), VISITOR)))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(last_view(one.serve(asked(tmp_path), other)))
        await asyncio.sleep(0.1)
        one.stop(other)
        view = await asyncio.wait_for(second, 5)
        assert not first.done()
        one.stop(VISITOR)
        await first
        return view

    assert "Stopped" in asyncio.run(both()).status
    assert len(engines.watches) == 2


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"question": "  "}, "question is empty"),
        ({"question": "x" * 301}, "301 characters"),
        ({"pictures": []}, "no picture"),
        ({"program": " \n"}, "program is empty"),
        ({"program": "x" * 4001}, "4,001 characters"),
        ({"method": "magic"}, "No method"),
        ({"shots": 13}, "limit is 12"),
    ],
)
def test_what_cannot_be_asked_is_said_and_not_asked(tmp_path: Path, fields: dict[str, Any], told: str) -> None:
    engines = StubEngines(Answered(answer()))
    one = service(tmp_path, engines)
    view = asyncio.run(last_view(one.serve(asked(tmp_path, **fields), VISITOR)))
    assert told in view.message and 'role="alert"' in view.message
    with pytest.raises(CodeVQAError, match=told):
        asyncio.run(one.answer(asked(tmp_path, **fields), VISITOR))
    assert engines.watches == []


def test_a_fault_of_the_demo_itself_is_logged_and_shown_without_its_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(StubEngines):
        def get(self, name: str) -> StubEngines:
            raise RuntimeError("a secret detail")

    view = asyncio.run(last_view(service(tmp_path, Faulty()).serve(asked(tmp_path), VISITOR)))
    assert "demo itself failed" in view.message and "secret" not in view.message
    assert "a secret detail" in caplog.text


def test_writing_is_shown_at_a_readable_pace() -> None:
    events = [Writing("x" * n) for n in range(1, 200)]

    class Typing(Watch):
        def __init__(self) -> None:
            def begin(tell: Callable[[Event], None]) -> Future[Answer]:
                future: Future[Answer] = Future()

                def type_all() -> None:
                    for event in events:
                        tell(event)
                        time.sleep(0.003)
                    tell(Answered(answer()))
                    future.set_result(answer())

                threading.Thread(target=type_all).start()
                return future

            super().__init__(begin)

    async def count() -> int:
        shown = LiveQuestion([picture()], compared=False)
        return len([view async for view in follow(Turn([Typing()]), shown, 60)])

    assert 3 <= asyncio.run(count()) <= 25
