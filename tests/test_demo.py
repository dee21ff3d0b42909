"""The demo's parts by themselves: limits, visitors, pictures, what is shown, engines, and what keeps strangers out."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from codevqa.core.answer import Answer
from codevqa.core.errors import CodeVQAError, ErrorRecord, ImageError, InputError, ModelNotFoundError, SetupError
from codevqa.core.events import Answered, CallBegan, CallEnded, Event, Failed, Prepared, Rejected, Shown, Writing, Wrote
from codevqa.core.images import Picture, load_picture
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.demo import serve as serve_module
from codevqa.demo.engines import Engines, lacking
from codevqa.demo.history import Histories, Past
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion, PageUpdate
from codevqa.demo.pictures import read_pictures, shipped_questions
from codevqa.demo.service import DemoRequest, DemoService, VisitorId
from codevqa.demo.turn import Turn, follow
from codevqa.demo.unread import Unread
from codevqa.demo.visitor import Allowance, Visitors
from codevqa.engine.watch import Watch
from codevqa.presets.configuration import Configuration, Layer

ROOT = Path(__file__).resolve().parent.parent
GARDEN = ROOT / "examples" / "pictures" / "garden.png"
VISITOR = VisitorId("one", "127.0.0.1")
EVIL = "<img src=x onerror=alert(1)>"


def picture() -> Picture:
    return load_picture(Image.new("RGB", (8, 8), "red"))


def answer(text: str = "yes", *calls: Call, **fields: Any) -> Answer:
    return Answer("Is it?", text, Program("answer = 1"), Trace(calls), seconds=0.5, tokens=12, **fields)


def call(index: int = 1, **fields: Any) -> Call:
    return Call(index, "query", {"question": "What?"}, "blue", 0.01, 1, **fields)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# -- visitors --------------------------------------------------------------------------------------------------------


def test_an_allowance_is_used_up_and_comes_back_after_a_minute() -> None:
    clock = Clock()
    allowance = Allowance(2, clock)
    assert allowance.wait() == 0
    allowance.take()
    clock.now += 20
    allowance.take()
    assert allowance.wait() == 40
    clock.now += 40
    assert allowance.wait() == 0


def test_visitors_share_nothing() -> None:
    visitors = Visitors(DemoLimits())
    one, other = visitors.get("one"), visitors.get("other")
    one.memory.put("key", "value", 10)
    one.answer = answer()
    assert other.memory.get("key") is None
    assert other.answer is None
    assert visitors.get("one") is one


def test_a_visitor_who_is_away_is_forgotten_and_what_runs_for_them_ends() -> None:
    clock = Clock()
    visitors = Visitors(DemoLimits(idle_seconds=60), clock)
    watch = Endless()
    visitors.get("one").running = [watch]
    clock.now += 59
    visitors.get("other")
    assert visitors.known("one") is not None
    clock.now += 2
    visitors.get("other")
    assert visitors.known("one") is None
    assert watch.done


def test_room_is_made_by_forgetting_who_was_away_longest_but_not_one_who_waits_for_an_answer() -> None:
    visitors = Visitors(DemoLimits(visitors=2))
    visitors.get("asks").running = [Endless()]
    visitors.get("looks")
    visitors.get("new")
    assert visitors.known("asks") and visitors.known("new")
    assert visitors.known("looks") is None
    assert len(visitors) == 2


def test_room_is_not_made_by_forgetting_one_whose_question_waits() -> None:
    visitors = Visitors(DemoLimits(visitors=2))
    visitors.get("waits").asking = 1
    visitors.get("looks")
    visitors.get("new")
    assert visitors.known("waits") and visitors.known("looks") is None


def test_a_visitor_and_an_address_are_told_when_to_come_back() -> None:
    clock = Clock()
    visitors = Visitors(DemoLimits(per_minute=1, per_minute_address=2), clock)
    visitors.admit("one", "here")
    with pytest.raises(InputError, match="60 seconds"):
        visitors.admit("one", "here")
    visitors.admit("two", "here")
    with pytest.raises(InputError, match="too much"):
        visitors.admit("three", "here")
    visitors.admit("three", "elsewhere")


# -- pictures --------------------------------------------------------------------------------------------------------


def test_the_shipped_examples_have_small_pictures_and_one_is_a_set() -> None:
    shipped = shipped_questions()
    assert 4 <= len(shipped) <= 6
    assert any(len(one.images) > 1 for one in shipped)
    for path in {path for one in shipped for path in one.images}:
        assert path.stat().st_size < 50_000
        assert path.read_bytes() == (ROOT / "examples" / "pictures" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "limits", "told"),
    [
        ("broken.png", b"not a picture", DemoLimits(), "broken.png is not a picture"),
        ("cut.png", GARDEN.read_bytes()[:3000], DemoLimits(), "cut.png is damaged"),
        ("large.png", GARDEN.read_bytes(), DemoLimits(pixels=100), "large.png is too large (256x256)"),
        ("heavy.png", GARDEN.read_bytes(), DemoLimits(upload_bytes=2000), "heavy.png is too large a file"),
        ("gone.png", None, DemoLimits(), "gone.png is no longer here"),
    ],
)
def test_a_bad_picture_is_told_by_its_name(
    tmp_path: Path, name: str, content: bytes | None, limits: DemoLimits, told: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        read_pictures([str(path)], limits, tmp_path)
    assert str(caught.value).startswith(told)
    assert str(tmp_path) not in str(caught.value)


def test_pictures_are_counted_and_only_uploads_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "uploads"
    inside.mkdir()
    good = inside / "garden.png"
    good.write_bytes(GARDEN.read_bytes())
    assert read_pictures([str(good)], DemoLimits(), inside)[0].name == "garden.png"
    for paths, told in (([], "no picture"), ([str(good)] * 3, "These are 3 pictures")):
        with pytest.raises(ImageError, match=told):
            read_pictures(paths, DemoLimits(pictures=2), inside)
    link = inside / "link.png"
    link.symlink_to(GARDEN)
    for path in (GARDEN, link, inside / ".." / "secret.png", Path("/etc/passwd")):
        with pytest.raises(ImageError, match="not uploaded"):
            read_pictures([str(path)], DemoLimits(), inside)


# -- what is shown ---------------------------------------------------------------------------------------------------


def live(**options: Any) -> LiveQuestion:
    return LiveQuestion([picture()], **{"compared": True} | options)


def feed(shown: LiveQuestion, *events: Event) -> Any:
    for event in events:
        shown.feed(event)
    return shown.view


def test_a_question_is_shown_step_by_step() -> None:
    shown = live()
    assert "working" in (shown.view.baseline or "")
    view = feed(shown, Prepared((Shown("mini-001", "How many?", "answer = 2"),), "prompt"))
    assert "1 worked example " in view.examples and "How many?" in view.examples and " open>" in view.examples
    view = feed(shown, Writing("img = op"))
    assert "img = op" in view.program
    assert view.source is None
    view = feed(shown, Wrote(Program("answer = query(img)")))
    assert view.source == "answer = query(img)"
    assert " open>" not in view.examples.split("</summary>")[0]
    view = feed(shown, CallBegan(1, "query", {"question": "What?"}, 1))
    assert 'data-state="running"' in view.running
    view = feed(shown, CallEnded(call(1)))
    assert view.running == ""
    assert 'data-state="computed"' in view.calls and "cv-value" in view.program
    before = view.calls
    view = feed(shown, CallEnded(call(2, remembered=True)))
    assert view.calls.startswith(before) and 'data-state="remembered"' in view.calls
    view = feed(shown, Answered(answer("two", call(1), call(2, remembered=True))))
    assert "two" in view.answer and "500 ms" in view.answer
    assert "2 calls, 1 of them from memory" in view.status and " data-busy " in view.status
    shown.feed_baseline(Answered(answer("three", method="pnpvqa")))
    assert "three" in (shown.view.baseline or "") and "They differ" in (shown.view.baseline or "")
    assert "data-busy" not in (shown.view.status or "")


@pytest.mark.parametrize(
    ("program", "without", "told"),
    [
        (answer("Two "), answer("two"), "Both agree"),
        (answer("two"), answer("three"), "They differ"),
        (answer("two", fallback=True), answer("two"), ""),
        (answer("", error=ErrorRecord("ModelError", "it broke")), answer(""), ""),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_whether_the_two_answers_agree_is_said_whichever_comes_first(
    program: Answer, without: Answer, told: str, first: bool
) -> None:
    shown = live()
    tellings: list[Callable[[], None]] = [
        lambda: shown.feed(Answered(program)),
        lambda: shown.feed_baseline(Answered(without)),
    ]
    for tell in tellings if first else tellings[::-1]:
        tell()
    said = shown.view.baseline or ""
    assert [words for words in ("Both agree", "They differ") if words in said] == ([told] if told else [])


def test_an_edited_program_is_compared_with_what_its_question_got_without_one() -> None:
    shown = live(compared=False, source="answer = 'no'", without=answer("yes"))
    assert "yes" in (shown.view.baseline or "") and "agree" not in (shown.view.baseline or "")
    assert "They differ" in feed(shown, Answered(answer("no"))).baseline
    assert live(compared=False, source="answer = 1").view.baseline == "", "an answer to something else goes"


def test_the_status_says_that_something_runs_until_nothing_does() -> None:
    shown = live()
    wrote = Wrote(Program("a = 1"))
    events: list[Event] = [Prepared((), "prompt"), wrote, CallBegan(1, "query", {}, 1), CallEnded(call())]
    assert all(" data-busy " in feed(shown, event).status for event in events)
    assert " data-busy " in feed(shown, Answered(answer())).status, "the answer without a program is still to come"
    shown.stopped("Stopped.")
    assert "data-busy" not in (shown.view.status or "") and "none: stopped" in (shown.view.baseline or "")


def test_a_refused_question_leaves_no_other_answer_beside_it() -> None:
    refused = PageUpdate.refusal("The server is busy.")
    assert "Failed" in (refused.status or "") and "data-busy" not in (refused.status or "")
    assert (refused.program, refused.calls, refused.baseline) == ("", "", "")
    assert refused.source is None, "what was written stays in the editor"


def test_what_users_and_models_say_is_escaped() -> None:
    everything = ""
    shown = live(question=EVIL)
    for event in (
        Prepared((Shown("id", EVIL, EVIL),), EVIL),
        Wrote(Program(f"x = '{EVIL}'")),
        CallBegan(1, EVIL, {EVIL: EVIL}, 1),
        CallEnded(Call(1, EVIL, {"question": EVIL}, EVIL, 0.1, 1)),
        Rejected(Program(EVIL), ErrorRecord("ProgramTypeError", EVIL, 1), "fallback"),
        Answered(answer(EVIL)),
    ):
        view = feed(shown, event)
        everything += "".join(str(piece) for piece in vars(view).values() if piece is not view.source)
    shown.feed_baseline(Failed(ErrorRecord("ModelError", EVIL)))
    everything += str(shown.view.baseline)
    assert "<img src=x" not in everything
    assert everything.count("&lt;img src=x") >= 20


def test_a_failure_outside_of_the_question_ends_the_baseline_too() -> None:
    shown = live()
    assert "working" in (shown.view.baseline or "")
    shown.failed(ErrorRecord("ModelError", "it broke"))
    assert "stopped" in (shown.view.baseline or "")


def test_a_program_that_fails_has_its_line_marked() -> None:
    shown = live(compared=False, source="a = 1\nb = c")
    view = feed(shown, Wrote(Program("a = 1\nb = c")), Failed(ErrorRecord("ProgramTypeError", "line 2: no c", 2)))
    assert "cv-failing" in view.program
    assert 'role="alert"' in view.message and "line 2: no c" in view.message
    assert view.source is None, "what the visitor wrote stays in the editor"


def test_a_fallback_says_so() -> None:
    shown = live()
    rejected = Rejected(Program("b = c"), ErrorRecord("ProgramTypeError", "line 1: no c", 1), "fallback")
    view = feed(shown, Wrote(Program("b = c")), rejected, Answered(answer("no", fallback=True)))
    assert "cv-failing" in view.program
    assert "answered without one" in view.message
    assert "because the program failed" in view.answer


def test_cards_past_the_limit_come_without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.demo.live.CARDS", 10)
    evidence = (Evidence("pnpvqa", (ImageRef(1),), "What?", captions=(("a rare caption",),)),)
    shown = live()
    assert "a rare caption" in feed(shown, CallEnded(call(1, evidence=evidence))).calls
    assert feed(shown, CallEnded(call(2, evidence=evidence))).calls.count("a rare caption") == 1


def test_what_nobody_comes_for_is_let_go_but_not_before_it_has_ended() -> None:
    # The part of Gradio's queue that is looked at; Gradio itself is served by a process of its own in test_demo_api.
    queue = SimpleNamespace(pending_messages_per_session={}, pending_event_ids_session={}, event_ids_to_events={})
    now = [0.0]
    unread = Unread(SimpleNamespace(_queue=queue), 60, clock=lambda: now[0])
    for session in ("left", "under way"):
        queue.pending_messages_per_session[session] = asyncio.Queue()
        queue.pending_event_ids_session[session] = {session}
    queue.event_ids_to_events["under way"] = SimpleNamespace(session_hash="under way")
    for now[0] in (0, 59):
        unread.sweep()
        assert len(queue.pending_messages_per_session) == 2
    now[0] = 60
    unread.sweep()
    assert list(queue.pending_messages_per_session) == list(queue.pending_event_ids_session) == ["under way"]
    del queue.event_ids_to_events["under way"]
    for now[0] in (61, 120, 121):
        unread.sweep()
        assert bool(queue.pending_messages_per_session) == (now[0] < 121)


# -- turns -----------------------------------------------------------------------------------------------------------


class Endless(Watch):
    """Tells what it is given, and ends only when it is cancelled."""

    def __init__(self, *events: Event) -> None:
        def begin(tell: Callable[[Event], None]) -> Future[Answer]:
            future: Future[Answer] = Future()
            for event in events:
                tell(event)
            if events and isinstance(events[-1], Answered | Failed):
                future.set_result(answer())
            return future

        super().__init__(begin)


class StubEngines:
    """An engine whose questions end as they are told to."""

    default = "mini"

    def __init__(self, *events: Event) -> None:
        self.events = events
        self.watches: list[Watch] = []
        self.options: list[dict[str, Any]] = []
        self.closed = False

    def loaded(self, name: str) -> bool:
        return True

    def get(self, name: str) -> StubEngines:
        return self

    def watch(self, images: object, question: str, **options: Any) -> Watch:
        self.options.append({"question": question} | options)
        self.watches.append(Endless(*self.events))
        return self.watches[-1]

    def watch_run(self, images: object, program: str, **options: Any) -> Watch:
        return self.watch(images, program, **options)

    def close(self) -> None:
        self.closed = True


def service(tmp_path: Path, engines: Any, **limits: Any) -> DemoService:
    (tmp_path / "garden.png").write_bytes(GARDEN.read_bytes())
    return DemoService(engines, DemoLimits(**limits), tmp_path)


def asked(tmp_path: Path, **fields: Any) -> DemoRequest:
    return DemoRequest(**{"pictures": [str(tmp_path / "garden.png")], "question": "Is it?", "preset": "mini"} | fields)


async def all_views(views: AsyncIterator[tuple[PageUpdate, LiveQuestion | None]]) -> list[Any]:
    return [view async for view, _ in views]


async def last_view(views: AsyncIterator[tuple[PageUpdate, LiveQuestion | None]]) -> Any:
    return (await all_views(views))[-1]


def test_the_question_and_the_baseline_are_asked_with_the_visitors_own_memory(tmp_path: Path) -> None:
    engines = StubEngines(Answered(answer("blue")))
    one = service(tmp_path, engines)
    view = asyncio.run(last_view(one.serve(asked(tmp_path, question="  Is\nit? ", shots=3), VISITOR)))
    assert "blue" in view.answer and "blue" in (view.baseline or "")
    memory = one.visitors.get("one").memory
    assert engines.options == [
        {"question": "Is it?", "method": "codevqa", "shots": 3, "memory": memory},
        {"question": "Is it?", "method": "pnpvqa", "memory": memory},
    ]
    assert one.visitors.get("one").running == []


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
    assert not one.stop(VisitorId("nobody", ""))


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
    first, second, third = (VisitorId(name, "127.0.0.1") for name in ("first", "second", "third"))

    async def three() -> tuple[list[Any], Any]:
        asking = asyncio.create_task(last_view(one.serve(asked(tmp_path), first)))
        await asyncio.sleep(0.1)
        waiting = asyncio.create_task(all_views(one.serve(asked(tmp_path), second)))
        await asyncio.sleep(0.1)
        refused = await last_view(one.serve(asked(tmp_path), third))
        assert len(engines.watches) == 2, "the second waits"
        one.stop(first)
        await asking
        await asyncio.sleep(0.1)
        assert len(engines.watches) == 4, "its turn has come"
        one.stop(second)
        return await waiting, refused

    views, refused = asyncio.run(three())
    assert "Waiting: 1 before you" in views[0].status
    assert "server is busy: 1 questions are waiting" in refused.message


def test_stop_also_ends_the_wait(tmp_path: Path) -> None:
    engines = StubEngines(Writing("img ="))
    one = service(tmp_path, engines, at_once=1)
    other = VisitorId("other", "127.0.0.1")

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
        visitor = Visitors(DemoLimits()).get("one")
        shown = LiveQuestion([picture()], compared=False)
        return len([view async for view in follow(Turn(Typing()), shown, visitor, 60)])

    assert 3 <= asyncio.run(count()) <= 25


def keep(one: DemoService, tmp_path: Path, visitor_id: VisitorId = VISITOR) -> Past | None:
    return asyncio.run(one.keep(asked(tmp_path), PageUpdate("<p>blue</p>"), visitor_id, Histories.token("")))


def test_the_page_for_download_hides_where_models_lie(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    one = service(tmp_path, StubEngines(Answered(answer("blue", models=models))))
    asyncio.run(last_view(one.serve(asked(tmp_path), VISITOR)))
    past = keep(one, tmp_path)
    assert past is not None and Path(past.page or "").is_relative_to(tmp_path)
    text = Path(past.page or "").read_text("utf-8")
    assert "blue" in text and "garden.png" in text
    assert "somebody" not in text
    assert keep(one, tmp_path, VisitorId("other", "")) is None


def test_a_client_is_not_told_where_models_lie(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    told = service(tmp_path, StubEngines(Answered(answer("blue", models=models)))).answer(asked(tmp_path), VISITOR)
    assert asyncio.run(told).models == {"writer": "lm", "reader": "gpt"}


def test_pages_for_download_lie_where_nobody_guesses(tmp_path: Path) -> None:
    one = service(tmp_path, StubEngines(Answered(answer("blue"))))
    asyncio.run(last_view(one.serve(asked(tmp_path), VISITOR)))
    kept = [keep(one, tmp_path) for _ in range(3)]
    folders = {past.folder.name for past in kept if past is not None}
    assert len(folders) == 3 and all(len(name) == 32 for name in folders)


# -- engines ---------------------------------------------------------------------------------------------------------


def test_a_page_that_cannot_be_written_costs_the_answer_nothing(tmp_path: Path) -> None:
    demo = service(tmp_path, StubEngines(Answered(answer())))
    assert "Done in" in asyncio.run(last_view(demo.serve(asked(tmp_path), VISITOR))).status
    (tmp_path / "pages").write_text("where the folder should be")
    assert keep(demo, tmp_path) is None
    (tmp_path / "pages").unlink()
    assert keep(demo, tmp_path) is not None


def test_an_engine_is_loaded_once_for_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    engine = StubEngines()

    def load(configuration: Configuration) -> StubEngines:
        loads.append(configuration.preset)
        time.sleep(0.1)
        return engine

    monkeypatch.setattr("codevqa.engine.codevqa.CodeVQA.from_configuration", load)
    engines = Engines("mini")
    got: list[Any] = []
    threads = [threading.Thread(target=lambda: got.append(engines.get("mini"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == ["mini"] and got == [engine] * 4
    assert engines.loaded("mini") and not engines.loaded("base")
    engines.close()
    assert engine.closed


def test_a_load_that_failed_is_tried_again_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes: list[Any] = [SetupError("no disk"), SetupError("still none"), StubEngines()]

    def load(configuration: Configuration) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("codevqa.engine.codevqa.CodeVQA.from_configuration", load)
    engines = Engines("mini")
    reported: list[str] = []
    said = threading.Event()

    def report(text: str) -> None:
        reported.append(text)
        said.set()

    engines.start(report)
    assert said.wait(10) and reported == ["no disk"]
    with pytest.raises(SetupError, match="still none"):
        engines.get("mini")
    assert engines.get("mini") is not None


def test_a_visitor_never_makes_the_server_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "codevqa.engine.codevqa.CodeVQA.from_configuration", lambda configuration: pytest.fail("loaded")
    )
    monkeypatch.setattr(
        "codevqa.demo.engines.missing",
        lambda spec: "" if ":@" in spec else "not downloaded yet: needs the network once",
    )
    engines = Engines("mini")
    assert lacking(engines.configuration("mini")) == {}
    with pytest.raises(ModelNotFoundError, match=r"blip-itm-base-coco@\w+, .*all-mpnet-base-v2 \(not downloaded yet"):
        engines.get("base")
    shown = {value: text for text, value in engines.choices()}
    assert shown["base"] == "base (models not on this machine)"
    assert shown["paper"] == "paper (needs --language-model)"
    with pytest.raises(SetupError, match="--language-model"):
        engines.get("paper")
    told = Engines("mini", layers=[Layer("given", {"language_model": "openai:x"})]).choices()
    assert ("paper (models not on this machine)", "paper") in told
    view = asyncio.run(last_view(service(tmp_path, engines).serve(asked(tmp_path, preset="base"), VISITOR)))
    assert "Salesforce/blip-itm-base-coco" in view.message
    view = asyncio.run(last_view(service(tmp_path, engines).serve(asked(tmp_path, preset="nope"), VISITOR)))
    assert "No preset" in view.message and "nope" in view.message


# -- serving ---------------------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_said_and_without_one_the_next_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=rf"port {port}: it is taken. Give another with --port"):
            serve_module._free_port("127.0.0.1", port)
    with pytest.raises(SetupError, match=r"Cannot listen on 192\.0\.2\.1, port 0: "):
        serve_module._free_port("192.0.2.1", 0)
    assert serve_module._free_port("127.0.0.1", None) in range(7860, 7871)
    assert serve_module._free_port("127.0.0.1", 0) > 0


@pytest.mark.parametrize("auth", ["", "name", "name:", ":word"])
def test_half_a_login_is_refused_before_anything_is_loaded(auth: str) -> None:
    with pytest.raises(SetupError, match="is no NAME:PASSWORD"):
        serve_module.main(auth=auth, say=print)


def test_without_gradio_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_module, "find_spec", lambda name: None)
    with pytest.raises(SetupError, match=r"pip install 'codevqa\[demo\]'"), serve_module.serving():
        pass


def test_the_environment_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_ALLOWED_PATHS", "/home")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with serve_module._environment(tmp_path, offline=True):
        assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
        assert os.environ["HF_HUB_OFFLINE"] == "1"
        assert os.environ["GRADIO_ALLOWED_PATHS"] == ""
    assert os.environ["GRADIO_ALLOWED_PATHS"] == "/home"
    assert "HF_HUB_OFFLINE" not in os.environ
    with serve_module._environment(tmp_path, offline=False):
        assert "HF_HUB_OFFLINE" not in os.environ


def test_the_command_line_stays_light() -> None:
    code = "import sys, codevqa.cli.main, codevqa.demo; print('gradio' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.split() == ["False", "False"]


FIRST = """
import sys
from codevqa.demo.serve import Engines, serving
begun = []
Engines.start = lambda self, say: begun.append("codevqa.demo.page" in sys.modules)
with serving() as served:
    print(served.url, begun, {"torch", "transformers"} & sys.modules.keys())
"""


def test_the_page_waits_for_the_libraries_of_models() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=500, check=True)
    assert done.stdout.startswith("http://127.0.0.1:") and done.stdout.endswith("/ [True] set()\n"), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.4, 0.8, 1.5])
@pytest.mark.parametrize("loading", ["the page", "the models"])
def test_an_interrupt_while_it_loads_ends_it_within_two_seconds(tmp_path: Path, loading: str, seconds: float) -> None:
    with subprocess.Popen(
        [sys.executable, "app.py", "--no-browser", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not list(tmp_path.glob("codevqa-demo-*")):  # then it has begun
            assert process.poll() is None
            time.sleep(0.01)
        if loading == "the models":
            assert process.stderr is not None and "listening" in process.stderr.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        try:
            _, rest = process.communicate(timeout=2 + 3)  # a busy machine takes its time
        finally:
            process.kill()
    assert process.returncode in (130, 0) and "Traceback" not in rest
    assert not list(tmp_path.glob("codevqa-demo-*"))


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_app_py_serves_says_where_and_ends_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "app.py", "--no-browser", "--port", "0"]
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        # Where the tests run in the background of a shell, interrupts are ignored, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("codevqa: listening on http://127.0.0.1:")
            port = line.split(":")[3].split("/")[0]
            taken = subprocess.run([*words[:-1], port], cwd=ROOT, capture_output=True, text=True, env=environment)
            assert taken.returncode == 2 and taken.stdout == ""
            assert (
                taken.stderr
                == f"codevqa: Cannot listen on 127.0.0.1, port {port}: it is taken. Give another with --port.\n"
            )
            assert list(tmp_path.glob("codevqa-demo-*"))
            process.send_signal(ending)
            rest = process.stderr.read()
            assert process.wait(30) == 0, rest
        finally:
            process.kill()
    assert rest == "codevqa: ended\n"
    assert not list(tmp_path.glob("codevqa-demo-*")), "uploads are deleted"
