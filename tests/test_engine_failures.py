"""What goes wrong in the pipeline: a program is mended once or falls back marked, and every error is typed."""

import asyncio
import re
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from engine_kit import BLUE, GREEN, RED, engine, last_of

from codevqa import Answer, Limits, QuerySettings, Question, Settings, WriterSettings
from codevqa.core.answer_words import DONT_KNOW
from codevqa.core.errors import (
    EmptyReadingError,
    ImageError,
    InputError,
    InternalError,
    ModelError,
    ProgramSyntaxError,
    PromptTooLongError,
    QuestionError,
    ServerError,
)
from codevqa.core.events import Failed
from codevqa.core.images import load_picture
from codevqa.core.trace import Trace
from codevqa.engine.many import stream
from codevqa.models.fakes import FakeCaptioner, ScriptedLM
from codevqa.models.protocols import CaptionRequest, GenerationRequest


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("answer = (", "ProgramSyntaxError"),
        ("answer = query(img)", "ProgramTypeError"),
        ("answer = [][1]", "ProgramRuntimeError"),
        ("while True: answer = 1", "ProgramLimitError"),
        ("x = 1", "UnsetAnswerError"),
        ("answer = None", "ProgramAnswerError"),
        ("answer = ''", "ProgramAnswerError"),
    ],
)
def test_a_program_that_fails_is_a_marked_fallback_with_a_typed_error(program: str, error: str) -> None:
    settings = Settings(query=QuerySettings(captions=1, patches=5), limits=Limits(seconds=1.0), workers=4)
    with engine(program, answers={"Is it red?": "perhaps"}, settings=settings, repairs=0) as vqa:
        answer = vqa.ask(RED, "Is it red?")
    assert answer.fallback and answer.text == "perhaps"
    assert answer.error is not None and answer.error.type == error
    assert answer.program is not None and answer.program.source == program
    assert answer.trace.attempts[0][1] == answer.error and answer.trace.baseline


def test_an_answer_of_another_kind_goes_back_and_is_never_given() -> None:
    with engine("x = 'left'\nanswer = x") as vqa:
        answer = vqa.ask(RED, "Is it red?")
    messages = [error.message for _, error in answer.trace.attempts]
    assert answer.fallback and messages == ['the question wants "yes" or "no", not \'left\''] * 2
    settings = Settings(writer=WriterSettings(fit=False), query=QuerySettings(captions=1, patches=5), workers=4)
    with engine("x = 'left'\nanswer = x", settings=settings) as vqa:
        assert vqa.ask(RED, "Is it red?").text == "left"


def test_a_reader_may_say_that_it_does_not_know_whatever_the_question_wants() -> None:
    for question, fallback in (("How many names does it have?", False), ("Is it happy?", True)):
        with engine(f"answer = query(img, {question!r})", answers={question: DONT_KNOW}) as vqa:
            answer = vqa.ask(RED, question)
        # A program might take it for a no.
        assert (answer.text, answer.fallback) == (DONT_KNOW, fallback)


def test_a_program_that_names_no_answer_is_marked_as_mended() -> None:
    for source, mended in (("cup = query(img, 'Is it red?')", True), ("answer = query(img, 'Is it red?')", False)):
        with engine(source) as vqa:
            answer = vqa.ask(RED, "Is it red?")
        assert answer.program is not None and answer.program.mended is mended and not answer.fallback
        assert Answer.from_json(answer.to_json()) == answer


def test_after_a_failure_no_model_is_asked_for_that_question_any_more() -> None:
    def caption(request: CaptionRequest) -> str:
        if request.picture.key == load_picture(RED).key:
            raise ModelError("no captions of this one")
        return "a thing"  # always the same, so that ever more are drawn

    captioner = FakeCaptioner(caption, grid=6)
    with engine(captioner=captioner) as vqa:
        with pytest.raises(ModelError, match="no captions of this one"):
            vqa.ask([RED, GREEN, BLUE], "Is it?", method="pnpvqa")
        time.sleep(0.1)
        assert captioner.batches == [6, 1]  # all, and the first alone to see whether it is at fault
        assert vqa.ask([GREEN, BLUE], "Is it?", method="pnpvqa").text == "yes"


def test_a_model_that_is_down_is_an_error_not_a_fallback() -> None:
    def down(request: GenerationRequest) -> str:
        raise ServerError("The server is down.")

    with engine(down) as vqa, pytest.raises(ServerError, match="down"):
        vqa.ask(RED, "Is it red?")
    catching = "try:\n    answer = query(img, 'a')\nexcept Exception:\n    answer = 'caught'"
    with engine(catching, read=down) as vqa, pytest.raises(ModelError, match="down"):
        vqa.ask(RED, "Is it red?")


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (PromptTooLongError("The prompt is long.", hint="Show fewer."), r"The prompt is long\. Show fewer\."),
        (ServerError("The server is down.", retryable=True), r"The server is down\."),
        (ModelError("It\nbroke."), r"It broke\."),
        (KeyError("it"), "KeyError: 'it'"),
        (None, r"The reading model gave an empty answer \d+ times\."),
    ],
)
def test_a_fallback_that_fails_is_the_cause_and_the_program_s_error_is_kept(
    failure: Exception | None, cause: str
) -> None:
    def read(request: GenerationRequest) -> str:
        if failure is None:
            return ""
        raise failure

    type_ = failure if isinstance(failure, ModelError) else ModelError("") if failure else EmptyReadingError("")
    with engine("answer = 'red", read=read) as vqa:
        with pytest.raises(type(type_)) as caught:
            vqa.ask(RED, "Is it red?")
        (answer,) = vqa.ask_many([(RED, "Is it red?")])
    message = rf"^The fallback failed: {cause} Before that, the program failed: ProgramSyntaxError: line 1: .*"
    assert re.search(message, str(caught.value)) and "\n" not in str(caught.value)
    assert type(caught.value) is type(type_) and caught.value.retryable is getattr(failure, "retryable", False)
    assert isinstance(caught.value.__cause__, ProgramSyntaxError) and caught.value.__cause__.answer is not None
    assert answer.error is not None and answer.error.type == type(type_).__name__
    assert re.search(message, answer.error.message)
    assert [error.type for _, error in answer.trace.attempts] == ["ProgramSyntaxError"] * 2
    assert answer.program is not None and answer.program.source == "answer = 'red"
    assert failure is None or "fallback" not in str(failure)  # the model's own error is as it was


def test_a_question_that_a_model_failed_keeps_its_program_and_its_calls() -> None:
    def second_fails(request: GenerationRequest) -> str:
        if "Second" in str(request.prompt).rsplit("Q: ", 1)[1]:
            raise ModelError("It failed.")
        return " yes"

    program = "first = query(img, 'First?')\nanswer = query(img, 'Second?')"
    settings = Settings(query=QuerySettings(captions=1, patches=5), workers=4, ahead=False)
    with engine(program, read=ScriptedLM(second_fails), settings=settings) as vqa:
        asked = [(RED, "Is it red?"), (GREEN, "Is it green?")]
        for answer in vqa.ask_many(asked):
            assert answer.text == "" and answer.error is not None and answer.error.type == "ModelError"
            assert answer.program is not None and answer.program.source == program
            assert [call.value for call in answer.trace.calls] == ["yes", None]
            assert answer.cost is not None and answer.cost.calls["read"] == 2
        with pytest.raises(ModelError):
            vqa.ask_many(asked, errors="raise")


def test_our_mistake_costs_one_question(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def mistaken(question: str, longest: int) -> str:
        raise ZeroDivisionError("a mistake") if "broken" in question else QuestionError("typed")

    monkeypatch.setattr("codevqa.engine.prepared_question.checked_question", mistaken)
    with engine("answer = 1") as vqa:
        first, second = vqa.ask_many([Question(RED, "Is it broken?"), Question(RED, "Is it red?")])
        with pytest.raises(InternalError, match=r"codevqa made a mistake: ZeroDivisionError\. .* report") as caught:
            vqa.ask(RED, "Is it broken?")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        (failed,) = vqa.watch(RED, "Is it broken?")
        assert isinstance(failed, Failed) and failed.error.type == "InternalError"
    assert [answer.error and answer.error.type for answer in (first, second)] == ["InternalError", "QuestionError"]
    assert "A question failed: 'Is it broken?'" in caplog.text


def test_an_error_of_ours_is_one_line() -> None:
    assert str(ServerError("The disk\nis full.", hint="Make\nroom.")) == "The disk is full. Make room."


def test_the_first_failure_in_order_is_raised_though_another_comes_sooner() -> None:
    begun = threading.Event()

    def written(request: GenerationRequest) -> str:
        if "slow" in str(request.prompt):
            assert begun.wait(20)
            time.sleep(0.2)
        return "answer = 1"

    with engine(written, settings=Settings(workers=4)) as vqa:
        asked = [(RED, "is it slow?"), (RED, ""), (RED, "is it fast?")]
        first = vqa.ask_many

        def late() -> None:
            time.sleep(0.1)
            begun.set()

        threading.Thread(target=late).start()
        with pytest.raises(QuestionError):
            first(asked, errors="raise")
        assert begun.is_set(), "the question before it was waited for"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_of_many_questions_the_first_in_order_that_fails_is_raised(asynchronous: bool) -> None:
    def slowly(request: GenerationRequest) -> str:
        if "slow" in str(request.prompt).rsplit("Q: ", 1)[1]:
            time.sleep(0.3)
            raise ModelError("The slow one failed.")
        return " yes"

    slow, gone = Question(RED, "Is it slow?"), Question("nowhere.png", "Is it gone?")
    settings = Settings(query=QuerySettings(captions=1, patches=5), workers=3)
    with engine(read=ScriptedLM(slowly), settings=settings) as vqa:
        for asked, error in (
            ([slow, gone], ModelError),
            ([Question(GREEN, "Is it?"), slow, gone, slow], ModelError),
            ([gone, slow], ImageError),
            ([slow, ("none",), gone], ModelError),
            ([("none",), gone, slow], InputError),
            ([*[Question(GREEN, f"Is it {number}?") for number in range(12)], slow, gone], ModelError),
        ):
            many: Any = asked
            with pytest.raises(error) as caught:
                if asynchronous:
                    asyncio.run(last_of(vqa.ask_stream_async(many, method="pnpvqa", errors="raise")))
                else:
                    vqa.ask_many(many, method="pnpvqa", errors="raise")
            assert type(caught.value) is error


def test_a_stream_that_raises_has_yielded_what_came_before() -> None:
    begun: list[Future[Answer]] = []

    def begin(asked: Any) -> Future[Answer]:
        begun.append(Future())
        if len(begun) == 4:  # the last of them is there first, and the first last
            begun[3].set_result(Answer("d", "4", None, Trace()))
            begun[2].set_exception(ModelError("third"))
            threading.Timer(0.1, begun[1].set_exception, [ModelError("second")]).start()
            threading.Timer(0.2, begun[0].set_result, [Answer("a", "1", None, Trace())]).start()
        return begun[-1]

    seen = []
    with pytest.raises(ModelError, match="second"):
        for place, _ in stream(begin, [(RED, "a")] * 9, 4):
            seen.append(place)
    assert seen == [3, 0] and len(begun) == 4
