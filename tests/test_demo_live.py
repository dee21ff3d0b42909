"""How the demo shows one question while it is answered."""

from typing import Any

import pytest
from pages_kit import Read
from service_kit import answer

from codevqa.core.answer import Answer
from codevqa.core.errors import ErrorRecord
from codevqa.core.events import (
    Answered,
    CallBegan,
    CallEnded,
    Event,
    Failed,
    Prepared,
    PromptExample,
    Rejected,
    Writing,
    Wrote,
)
from codevqa.core.notices import notice
from codevqa.core.trace import Call, DomainWarning, Evidence, ImageRef, Program, Trace
from codevqa.demo.live import LiveQuestion, PageUpdate, visitor_words

EVIL = "<img src=x onerror=alert(1)>"


def call(index: int = 1, **fields: Any) -> Call:
    return Call(index, "query", {"question": "What?"}, "blue", 0.01, 1, **fields)


def question(**options: Any) -> LiveQuestion:
    return LiveQuestion(**{"compared": ["pnpvqa"]} | options)


def feed(shown: LiveQuestion, *events: Event) -> PageUpdate:
    for event in events:
        shown.feed(event)
    return shown.view()


def test_a_question_is_shown_step_by_step() -> None:
    shown = question()
    assert "working" in shown.view().baseline and " data-busy " in shown.view().status
    view = feed(shown, Prepared((PromptExample("mini-001", "How many?", "answer = 2"),), "prompt"))
    assert "1 worked example " in view.examples and "How many?" in view.examples and " open>" not in view.examples
    view = feed(shown, Writing("img = op"))
    assert "img = op" in view.program
    assert view.source is None
    view = feed(shown, Wrote(Program("answer = query(img)")))
    assert view.source == "answer = query(img)"
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
    assert " data-busy " in view.status, "the answer without a program is still to come"
    shown.feed_without("pnpvqa", Answered(answer("three", method="pnpvqa")))
    view = shown.view()
    assert "three" in view.baseline and "Another answer" in view.baseline and "data-busy" not in view.status


def test_a_wait_for_the_server_is_said_while_it_lasts() -> None:
    shown = question()
    with notice("the server asks to wait 12 s: <busy>"):
        assert "The server asks to wait 12 s: &lt;busy&gt;" in shown.view().message
    assert "wait 12" not in shown.view().message


def test_what_users_and_models_say_is_escaped() -> None:
    everything = ""
    shown = question(question=EVIL)
    for event in (
        Prepared((PromptExample("id", EVIL, EVIL),), EVIL),
        Wrote(Program(f"x = '{EVIL}'")),
        CallBegan(1, EVIL, {EVIL: EVIL}, 1),
        CallEnded(Call(1, EVIL, {"question": EVIL}, EVIL, 0.1, 1)),
        Rejected(Program(EVIL), ErrorRecord("ProgramTypeError", EVIL, 1), "fallback"),
        Answered(answer(EVIL)),
    ):
        view = feed(shown, event)
        everything += "".join(map(str, view._replace(source="")))
    shown.feed_without("pnpvqa", Failed(ErrorRecord("ModelError", EVIL)))
    everything += shown.view().baseline
    assert "<img src=x" not in everything
    assert everything.count("&lt;img src=x") >= 20


def test_a_program_that_fails_has_its_line_marked() -> None:
    shown = question(compared=(), source="a = 1\nb = c")
    view = feed(shown, Wrote(Program("a = 1\nb = c")), Failed(ErrorRecord("ProgramTypeError", "line 2: no c", 2)))
    assert "cv-failing" in view.program and 'role="alert"' in view.message
    assert "".join(filter(None, view)).count("line 2: no c") == 1, "the same error stands once"
    assert view.source is None, "what the visitor wrote stays in the editor"


def test_a_changed_program_says_what_was_changed_and_ignorance_is_neutral_and_says_what_to_do() -> None:
    for original, words in ((EVIL, "edited program"), ("b = 2", "program run again"), ("", "own program")):
        shown = question(compared=(), source="b = 2", original=original)
        box = feed(shown, Wrote(Program("b = 2")), Answered(answer("two"))).answer
        assert f">{words}<" in box and "<img" not in box and "demo-unsure" not in box
        assert ("<ins>now: b = 2</ins>" in box and "<del>before: &lt;img" in box) == (original == EVIL)
    warned = answer("I don't know", warnings=(DomainWarning("words", "What is that?"),))
    box = feed(question(), Answered(warned)).answer
    assert "demo-unsure" in box and "other words" in box and "write a program" in box


def test_cards_past_the_limit_come_without_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.demo.live.CARDS", 10)
    evidence = (Evidence("pnpvqa", (ImageRef(1),), "What?", captions=(("a rare caption",),)),)
    shown = question()
    assert "a rare caption" in feed(shown, CallEnded(call(1, evidence=evidence))).calls
    assert feed(shown, CallEnded(call(2, evidence=evidence))).calls.count("a rare caption") == 1


def test_answers_without_a_program_stand_side_by_side_each_with_its_evidence() -> None:
    shown = question(compared=["direct", "pnpvqa"])
    assert shown.view().baseline.count("working") == 2
    feed(shown, Answered(answer("two")))
    for method, text, kind in (("direct", "two", "eyes"), ("pnpvqa", "three", "pnpvqa")):
        seen = Trace(baseline=(Evidence(kind, (ImageRef(1),), f"evidence of {method}"),))
        shown.feed_without(method, Answered(Answer("Is it?", text, None, seen, method=method)))  # type: ignore[arg-type]
    directly, captions = Read(shown.view().baseline).all("section")
    assert "asked directly" in directly.text and "Same answer" in directly.text
    assert "PnP-VQA" in captions.text and "Another answer" in captions.text
    assert "evidence of direct" in directly.text and "evidence of pnpvqa" in captions.text
    stopped = question(compared=["direct", "pnpvqa"])
    stopped.end("Stopped.")
    assert stopped.view().baseline.count("stopped") == 2 and "data-busy" not in stopped.view().status


def test_options_of_the_command_line_go_to_the_log_and_not_on_the_page(caplog: pytest.LogCaptureFixture) -> None:
    about = "We know drawn things: cups. For photographs: --preset api. Try 'a cup?'. More: codevqa models."
    assert visitor_words(about) == "We know drawn things: cups. Try 'a cup?'."
    assert visitor_words("tiny models: photographs; needs --model") == "tiny models: photographs"
    warned = answer("I don't know", warnings=(DomainWarning("words", about),))
    assert "--" not in feed(question(), Answered(warned)).message
    shown = question()
    for command in ("Give --form chat.", "Set OPENAI_BASE_URL."):
        error = ErrorRecord("SetupError", f"No such model. {command}")
        view = feed(shown, Failed(error))
        shown.feed_without("pnpvqa", Failed(error))
        assert "No such model." in view.message and command not in view.message + shown.view().baseline
        assert command in caplog.text
    assert "The reason is in its log" in feed(shown, Failed(ErrorRecord("SetupError", "Give --form chat."))).message
