"""What the demo takes and gives: pictures, a question shown step by step, pages for download."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from service_kit import GARDEN, ROOT, VISITOR, StubEngines, answer, asked, picture, service

from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord, ImageError
from codevqa.core.events import Answered, CallBegan, CallEnded, Event, Failed, Prepared, Rejected, Shown, Writing, Wrote
from codevqa.core.trace import Call, Evidence, ImageRef, Program
from codevqa.demo.history import Histories, Past
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion, PageUpdate
from codevqa.demo.pictures import read_pictures, shipped_questions
from codevqa.demo.service import DemoService
from codevqa.demo.unread import Unread
from codevqa.engine.watch import Watch

EVIL = "<img src=x onerror=alert(1)>"


def call(index: int = 1, **fields: Any) -> Call:
    return Call(index, "query", {"question": "What?"}, "blue", 0.01, 1, **fields)


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


def test_what_nobody_fetches_is_let_go_but_not_before_it_has_ended() -> None:
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


# -- pages for download ----------------------------------------------------------------------------------------------


def served(one: DemoService, tmp_path: Path) -> LiveQuestion:
    async def last() -> LiveQuestion:
        found = [live async for _, live in one.serve(asked(tmp_path), VISITOR)][-1]
        assert found is not None
        return found

    return asyncio.run(last())


def keep(one: DemoService, tmp_path: Path, live: LiveQuestion) -> Past | None:
    return asyncio.run(one.keep(asked(tmp_path), live, Histories.token("")))


class Slow(StubEngines):
    """Answers each question with its own words; the baseline never ends."""

    def watch(self, images: object, question: str, **options: Any) -> Watch:
        self.events = (
            () if options["method"] == "pnpvqa" else (Answered(replace(answer(f"of {question}"), question=question)),)
        )
        return super().watch(images, question, **options)


@pytest.mark.parametrize("turn_to", ["another question", "a past answer"])
@pytest.mark.timeout(20)
def test_a_question_is_kept_with_its_own_answer_whatever_its_visitor_turns_to(tmp_path: Path, turn_to: str) -> None:
    one = service(tmp_path, Slow())
    token = Histories.token("")

    async def ask(question: str) -> LiveQuestion:
        request, found = asked(tmp_path, question=question), None
        async for _, found in one.serve(request, VISITOR):
            if found is not None and found.answer is not None and question == "second?":
                answered.set()
            if found is not None and found.answer is not None and question == "first?":
                if turn_to == "a past answer":
                    one.turn_away(VISITOR)
                elif not later:
                    later.append(asyncio.create_task(ask("second?")))
        assert found is not None
        await one.keep(request, found, token)
        return found

    async def both() -> LiveQuestion:
        first = await ask("first?")
        if later:
            await answered.wait()  # it may still stand in line
        one.stop(VISITOR)
        await asyncio.gather(*later)
        return first

    later: list[asyncio.Task[LiveQuestion]] = []
    answered = asyncio.Event()
    assert asyncio.run(both()).replaced, "so that the page goes on to show the other"
    kept = {past.question: past for past in one.histories.of(token)}
    assert kept.keys() == ({"first?"} if turn_to == "a past answer" else {"first?", "second?"})
    for question, past in kept.items():
        view = past.view()
        assert past.answer == f"of {question}" and view is not None and past.answer in str(view.answer)
        assert "data-busy" not in str(view.status) and past.answer in Path(str(past.page)).read_text("utf-8")


def test_the_page_for_download_hides_where_models_lie(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    one = service(tmp_path, StubEngines(Answered(answer("blue", models=models))))
    past = keep(one, tmp_path, served(one, tmp_path))
    assert past is not None and Path(past.page or "").is_relative_to(tmp_path)
    text = Path(past.page or "").read_text("utf-8")
    assert "blue" in text and "garden.png" in text
    assert "somebody" not in text
    assert keep(one, tmp_path, LiveQuestion((), compared=False)) is None


def test_a_client_is_not_told_where_models_lie(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    told = service(tmp_path, StubEngines(Answered(answer("blue", models=models)))).answer(asked(tmp_path), VISITOR)
    assert asyncio.run(told).models == {"writer": "lm", "reader": "gpt"}


def test_pages_for_download_lie_where_nobody_guesses(tmp_path: Path) -> None:
    one = service(tmp_path, StubEngines(Answered(answer("blue"))))
    live = served(one, tmp_path)
    kept = [keep(one, tmp_path, live) for _ in range(3)]
    folders = {past.folder.name for past in kept if past is not None}
    assert len(folders) == 3 and all(len(name) == 32 for name in folders)


def test_a_page_that_cannot_be_written_costs_the_answer_nothing(tmp_path: Path) -> None:
    demo = service(tmp_path, StubEngines(Answered(answer())))
    live = served(demo, tmp_path)
    assert "Done in" in str(live.view.status)
    (tmp_path / "pages").write_text("where the folder should be")
    assert keep(demo, tmp_path, live) is None
    (tmp_path / "pages").unlink()
    assert keep(demo, tmp_path, live) is not None
