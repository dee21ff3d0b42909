"""Many questions at once, and what else a caller in Python meets: orders, arrays, lines that can be read."""

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_kit import NARROW, RED, Gate, engine
from huggingface_hub.utils.tqdm import enable_progress_bars

from codevqa import Answer, CodeVQA
from codevqa.core.errors import InputError

BAD = Path("none.png")


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with engine(settings=NARROW) as made:
        yield made


def texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


@pytest.mark.parametrize("bad", [(BAD, "Is it?"), (RED, ""), ("Is it?",), 7])
def test_one_policy_says_what_becomes_of_whatever_cannot_be_answered(vqa: CodeVQA, bad: Any) -> None:
    asked = [(RED, "Is it red?"), bad]
    first, second = vqa.ask_many(asked)
    assert (first.text, second.text) == ("yes", "") and second.error is not None
    with pytest.raises(InputError):
        vqa.ask_many(asked, errors="raise")
    with pytest.raises(InputError):
        asyncio.run(vqa.ask_many_async(asked, errors="raise"))


def test_progress_is_told_and_shown(vqa: CodeVQA, capfd: pytest.CaptureFixture[str]) -> None:
    told: list[tuple[int, int | None]] = []
    vqa.ask_many([(RED, "a?"), (BAD, "b?")], progress=lambda done, total: told.append((done, total)))
    vqa.ask_many(iter([(RED, "a?")]), progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2), (1, None)]
    assert capfd.readouterr().err == ""
    enable_progress_bars()  # commands that were quiet turned them off for the process
    vqa.ask_many([(RED, "a?"), (RED, "b?")], progress=True)
    assert "2/2" in capfd.readouterr().err


def test_answers_come_before_the_last_question_is_answered() -> None:
    gate = Gate()
    with engine(read=gate, workers=2) as gated:
        asked: Iterator[Any] = iter([(BAD, "Bad?"), (RED, "Held?")])
        answers = gated.ask_stream(asked, method="pnpvqa")
        place, answer = next(answers)
        assert (place, answer.error is not None) == (0, True)
        assert gate.entered.wait(20) and not gate.open.is_set()
        gate.open.set()
        assert [(place, answer.text) for place, answer in answers] == [(1, "yes")]


def test_questions_without_end_are_taken_as_there_is_room(vqa: CodeVQA) -> None:
    taken = itertools.count()
    endless = ((RED, f"Is it {next(taken)}?") for _ in itertools.repeat(None))
    answers = vqa.ask_stream(endless)
    found = [next(answers)[1].text for _ in range(5)]
    answers.close()
    assert found == ["yes"] * 5
    assert next(taken) <= 5 + 2 * NARROW.workers

    async def main() -> list[str]:
        stream = vqa.ask_stream_async((RED, f"Is it {next(taken)}?") for _ in itertools.repeat(None))
        found = [(await anext(stream))[1].text for _ in range(5)]
        await stream.aclose()
        return found

    assert asyncio.run(main()) == ["yes"] * 5


def test_leaving_a_stream_ends_what_is_under_way() -> None:
    gate = Gate()
    with engine(read=gate, workers=2) as gated:
        held = [(RED, f"Held {number}?") for number in range(20)]
        answers = gated.ask_stream([(BAD, "Bad?"), *held], method="pnpvqa")
        next(answers)
        answers.close()
        gate.open.set()
        assert texts(gated.ask_many([(RED, "Is it red?")], method="pnpvqa")) == ["yes"]
    assert not {"Held 2?", "Held 3?"} & set(gate.questions), "they wait for the first two, and nobody for them"
