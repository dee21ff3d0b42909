"""Calls are read off a program and begun ahead of it, which changes when models are asked and nothing else."""

import asyncio
import dataclasses
import gc
import logging
import subprocess
import sys
import threading
from typing import Any

import engine_kit
import pytest
from PIL import Image as PILImage

from codevqa import Answer, CodeVQA, Limits, Question
from codevqa.core.errors import CodeVQAError, ModelError, ServerError
from codevqa.core.images import load_picture
from codevqa.engine.call_plan import UNKNOWN, CallPlan, PlannedCall
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import GenerationRequest
from codevqa.primitives import Image, primitive
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox import Sandbox

# ruff: noqa: E501 -- a program reads best on one line


WANTED = {"query", "get_pos", "find_matching_image"}
PICTURES = tuple(Image(number, load_picture(PILImage.new("RGB", (8, 8), (number, 0, 0)))) for number in range(1, 4))


def shown(value: object) -> object:
    if isinstance(value, Image):
        return f"#{value.index}"
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


def calls(source: str, count: int = 3) -> list[str]:
    """Each planned call as ``name first second``."""
    calls = CallPlan(source, PICTURES[:count], WANTED).calls()
    return [
        " ".join([each.name, *(str(shown(value)) for value in (*each.args, *each.kwargs.values()))]) for each in calls
    ]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("img = open_image('Image2.jpg')\nanswer = query(img=img, question='a')", ["query #2 a"]),
        ("images = open_images('ImageSet1.jpg')\nfor img in images:\n    x = query(img, 'a')", ["query #1 a", "query #2 a", "query #3 a"]),
        ("answer = [query(i, 'a') for i in images[1:]]", ["query #2 a", "query #3 a"]),
        ("answer = any(query(i, 'a') == 'yes' for i in images[:2])", ["query #1 a", "query #2 a"]),
        ("answer = len({query(i, q) for i in images[:2] for q in ('a', 'b')})", ["query #1 a", "query #1 b", "query #2 a", "query #2 b"]),
        ("for n, i in enumerate(images[:2], 1):\n    query(i, f'is it {n}?')", ["query #1 is it 1?", "query #2 is it 2?"]),
        ("for n, (i, t) in enumerate([[images[0], 'cat'], (images[1], 'dog')]):\n    get_pos(i, t)", ["get_pos #1 cat", "get_pos #2 dog"]),
        ("img = find_matching_image(images, 'dog')\nanswer = query(img, 'a')", ["find_matching_image ['#1', '#2', '#3'] dog"]),
        ("a = query(images[0], 'a')\nb = query(images[0], f'{a}?')\nc = query(images[0], 'c')", ["query #1 a", "query #1 c"]),
        ("found = []\nfor i in images[:2]:\n    found.append(query(i, 'a').lower())\nfor i in found:\n    query(images[0], i)", ["query #1 a", "query #2 a"]),
        # What may not happen is left to the program.
        ("if query(images[0], 'a') == 'yes':\n    query(images[1], 'b')\nelse:\n    query(images[1], 'c')", ["query #1 a"]),
        ("answer = query(images[0], 'a') if query(images[0], 'b') else query(images[0], 'c')", ["query #1 b"]),
        ("for i in images:\n    if query(i, 'a') == 'yes':\n        break\nquery(images[0], 'b')", ["query #1 a", "query #1 b"]),
        ("n = [query(i, 'a') for i in images if query(i, 'b') == 'yes']", ["query #1 b", "query #2 b", "query #3 b"]),
        ("for i in found:\n    query(images[0], 'a')", []),
        # What a branch or a loop assigned is unknown afterwards, and a comprehension's variables are its own.
        ("if query(images[0], 'a'):\n    i = images[1]\n    query(i, 'b')\nelse:\n    i = images[2]\nquery(i, 'c')", ["query #1 a"]),
        ("for i in found:\n    j = images[0]\nquery(j, 'a')", []),
        # What is not known, is not called, or is something else.
        ("query = lambda i, q: 'no'\nanswer = query(images[0], 'a')", []),
        ("a, *b = images\nquery(b, 'a')\nquery(images[0], 'b')", ["query #1 b"]),
        ("answer = query(*[images[0], 'a'])", []),
        ("answer = query(images[0], 'a'", []),
        # Where it does not know how to go on it ends.
        ("query(images[0], 'a')\ndef f(i):\n    return query(i, 'a')\nanswer = f(images[0])", ["query #1 a"]),
    ],
)  # fmt: skip
def test_calls_read_off_a_program(source: str, expected: list[str]) -> None:
    assert calls(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("for i in images:\n    if query(i, 'a') == 'yes':\n        x = query(i, 'b')", ["query #2 b"]),
        (
            "for i in images:\n    if query(i, 'a').strip().lower() != 'yes':\n        continue\n    x = query(i, 'b')",
            ["query #2 b"],
        ),
        (
            "for i in images:\n    if query(i, 'a') == 'yes':\n        x = i\n        break\ny = query(x, 'b')",
            ["query #2 b"],
        ),
        ("x = [i for i in images if query(i, 'a') == 'yes']\ny = [query(i, 'b') for i in x]", ["query #2 b"]),
        (
            "x = []\nfor i in images:\n    if query(i, 'a') == 'yes':\n        x.append(i)\ny = [query(i, 'b') for i in x]",
            ["query #2 b"],
        ),
        ("x = [i for i in images if query(i, 'a') == 'yes' and query(i, 'b') == 'no']", ["query #2 b"]),
        ("x = query(images[1], 'a')\ny = query(images[0], 'b' if x == 'yes' else 'c')", ["query #1 b"]),
        (
            "if query(images[0], 'a') == 'yes' or not query(images[1], 'a') in ('no', ''):\n    query(images[2], 'b')",
            ["query #3 b"],
        ),
        (
            "for i in images:\n    for word in query(i, 'a').split(', '):\n        if word != 'no':\n            query(i, f'{word}?')",
            ["query #2 yes?"],
        ),
        # What is not known is not guessed.
        ("x = [query(i, 'a') for i in images]\nif x.count('yes') > 0:\n    query(images[0], 'b')", []),
        ("x = [query(i, 'a') for i in images]\nfor n in range(len(x)):\n    query(images[n], 'b')", []),
        (
            "x = []\nfor i in images:\n    if query(i, 'z') == 'yes':\n        x.append(i)\nif len(x) == 0:\n    query(images[0], 'b')",
            [],
        ),
    ],
)
def test_what_follows_from_results_is_planned_when_they_are_there(source: str, expected: list[str]) -> None:
    def result_of(call: PlannedCall) -> Any:
        return ("yes" if call.args[0] is PICTURES[1] else "no") if call.args[1] == "a" else UNKNOWN

    plan = CallPlan(source, PICTURES, WANTED)
    asked = [call for call in plan.calls(result_of) if result_of(call) is UNKNOWN and call.args[1] != "z"]
    assert [f"query #{call.args[0].index} {call.args[1]}" for call in asked] == expected  # type: ignore[attr-defined]


def test_the_second_question_about_each_picture_is_asked_of_all_at_once() -> None:
    waves: list[int] = []

    def read(request: GenerationRequest) -> str:
        return "yes"

    class Reader(ScriptedLM):
        def generate(self, requests: Any) -> Any:
            waves.append(len(requests))
            return super().generate(requests)

    program = "n = 0\nfor img in images:\n    if query(img, 'Is it red?') == 'yes':\n        if query(img, 'Is it big?') == 'yes':\n            n += 1\nanswer = n"
    reader = Reader(read)
    with engine_kit.engine(program, reader, max_batch=64) as vqa:
        answer = vqa.ask(
            [PILImage.new("RGB", (8, 8), (number, 0, 0)) for number in range(20)], "How many are big and red?"
        )
    assert (answer.value, len(answer.trace.calls)) == (20, 40)
    assert all(call.ahead for call in answer.trace.calls) and len(waves) < 6


def test_an_odd_backslash_of_a_model_s_is_no_warning_of_the_user_s() -> None:
    code = "from codevqa.sandbox.program_tree import parse; assert parse(r\"answer = '\\d'\") is not None"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


SHADES = [PILImage.new("RGB", (60, 40), (40 * number, 90, 10)) for number in range(5)]
LOOP = 'images = open_images("ImageSet7.jpg")\nn = 0\nfor img in images:\n    if query(img, "Is there a dog?") == "yes":\n        n = n + 1\nanswer = str(n)'
LEAVES = 'answer = "no"\nfor img in images:\n    if query(img, "Is there a dog?") == "yes":\n        answer = "yes"\n        break'


class Reader(ScriptedLM):
    """Answers by a hash of the prompt, so that answers depend on captions; fails on a word, if told."""

    def __init__(self, fails_on: str = "\0", error: type[CodeVQAError] = ModelError) -> None:
        super().__init__(self.read, name="reader")
        self.fails_on, self.error = fails_on, error

    def read(self, request: GenerationRequest) -> str:
        if self.fails_on in str(request.prompt).rsplit("Q: ", 1)[1].lower():
            raise self.error("broken")
        return " yes" if sum(map(ord, str(request.prompt))) % 2 else " no"


def engine(program: str = "", read: ScriptedLM | None = None, **settings: Any) -> CodeVQA:
    return engine_kit.engine(program, read or Reader(), **settings)


def timeless(answer: Answer) -> Answer:
    """The answer without the seconds in it."""
    calls = tuple(dataclasses.replace(call, seconds=0.0) for call in answer.trace.calls)
    return dataclasses.replace(answer, seconds=0.0, trace=dataclasses.replace(answer.trace, calls=calls))


PROGRAMS = [
    LOOP,
    LEAVES,
    "answer = [get_pos(i, 'dog')[0] for i in images] + [get_pos(i, 'dog')[1] for i in images]",
    "img = find_matching_image(images, 'dog')\nother = find_matching_image(images, 'cat')\nanswer = img == other",
    "a = query(images[0], 'a?')\nb = query(images[1], 'b?') if a == 'yes' else query(images[2], 'c?')\nanswer = a + b",
    "x = query(images[0], 'same?') + query(images[0], 'same?') + query(images[1], 'same?')\nanswer = x",
    "query(images[0], 'a?')\nx = query(images[1], 'bad?')\nanswer = query(images[2], 'c?')",
    "x = [query(i, 'a?') for i in images]\nanswer = x[9]",
    "try:\n    query(images[0], ' ')\nexcept ValueError:\n    pass\nget_pos(images[0], '')\nanswer = 1",
    "query(images[0], 'a?')\nquery(images[1], 3)\nanswer = 1",
    "query(images[0], 'a?')\nanswer = query(images[1])",
    "for n in range(30):\n    query(images[0], f'is it {n}?')\nanswer = 1",
    "print('x')\nanswer = [query(i, f'is it {n}?') for n, i in enumerate(images)]",
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_answers_traces_errors_and_tokens_stay_the_same(program: str) -> None:
    collected = []
    for settings in ({"ahead": False, "max_batch": 1, "remember": 0}, {}):
        with engine(program, Reader(fails_on="bad"), limits=Limits(calls=20), **settings) as vqa:
            (answer,) = vqa.ask_many([Question(SHADES, "Is it so?", "set")])
            collected.append(timeless(answer))
    assert collected[0] == collected[1]
    assert collected[0].program is not None or collected[0].error is not None


def test_failures_nobody_asked_for_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    program = "a = [query(i, 'good?') for i in images]\nb = [query(i, a[0] + '?') for i in images]\nanswer = 1\nif len(a) == 9:\n    query(images[0], 'bad?')\n    query(images[1], 'bad?')"
    read = Reader(fails_on="bad")
    with caplog.at_level(logging.DEBUG, "asyncio"), engine(read=read, batch_wait=0.0) as vqa:
        answers = [vqa.run(SHADES, program) for _ in range(3)]
        gc.collect()  # asyncio reports a failure that nobody looked at when it forgets it
    assert [answer.text for answer in answers] == ["1"] * 3
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with engine(read=Reader(fails_on="bad", error=ServerError)) as vqa, pytest.raises(ServerError, match="broken"):
        vqa.run(SHADES, "answer = [query(i, 'bad?') for i in images]")


def test_what_the_program_never_asks_for_is_cancelled() -> None:
    entered, let_go = threading.Event(), threading.Event()

    def read(request: GenerationRequest) -> str:
        entered.set()
        assert let_go.wait(10)
        return " yes"

    slow = "for i in images:\n    query(i, 'a?')\nanswer = 1"
    reader = ScriptedLM(read, name="reader")

    async def main(vqa: CodeVQA) -> None:
        asking = asyncio.ensure_future(vqa.run_async(SHADES, slow))
        assert await asyncio.to_thread(entered.wait, 10)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.3)  # the engine hears of it a moment later
        let_go.set()
        assert (await vqa.run_async(SHADES, "answer = query(images[0], 'b?')")).text == "yes"

    with engine(read=reader, max_batch=1) as vqa:
        asyncio.run(asyncio.wait_for(main(vqa), 20))
    assert len(reader.requests) == 2  # the one that ran, and the new one; four never began


def test_a_primitive_of_the_user_s_is_called_ahead_only_if_it_says_so() -> None:
    called: list[tuple[str, int]] = []

    @primitive
    def own(number: int) -> int:
        """Counts its calls."""
        called.append(("own", number))
        return number

    @primitive(ahead=True)
    def pure(number: int) -> int:
        """Counts its calls."""
        called.append(("pure", number))
        return number

    program = "{0}(1)\n{0}(2)\nif {0}(3) == 4:\n    {0}(4)\nanswer = 1"
    with engine(primitives=[own, pure]) as vqa:
        vqa.run(SHADES, program.format("own"))
        assert called == [("own", 1), ("own", 2), ("own", 3)]
        vqa.run(SHADES, program.format("pure"))
    assert sorted(number for name, number in called if name == "pure") == [1, 2, 3]


def test_a_new_image_of_the_program_is_not_taken_for_an_old_one() -> None:
    @primitive
    def swapped(images: list[Image]) -> list[Image]:
        """Returns pictures under one another's numbers."""
        first, second = images[:2]
        return [Image(first.index, second.picture), Image(second.index, first.picture)]

    program = "c = swapped(images)\nanswer = query(c[0], 'x?')\na = query(images[0], 'x?')\nb = query(images[1], 'x?')"
    collected = []
    for ahead in (False, True):
        with engine(primitives=[swapped], ahead=ahead, remember=0) as vqa:
            collected.append(timeless(vqa.run(SHADES, program)))
    assert collected[0] == collected[1]
    captions = [call.evidence[0].captions for call in collected[1].trace.calls[1:]]
    assert captions[0] == captions[2] != captions[1]


BROKEN = [
    "answer = qury(img, '{0}')",
    "answer = query(img, '{0}') + 1",
    "answer = query(3, '{0}')",
    "a, b = query(img, '{0}'), 1\nanswer = c",
    "x, y, z = get_pos(img, '{0}')\nanswer = x",
    "answer = query(img, '{0}').lower(",
    "answer = '{0}'[400]",
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_check_shared_by_shape_says_what_a_check_of_the_program_says(text: str) -> None:
    async def said(*sources: str) -> list[str]:
        collected = []
        async with Sandbox(VISUAL, workers=1) as box:
            for source in sources:
                try:
                    await box.check(source)
                    collected.append("fine")
                except CodeVQAError as error:
                    collected.append(f"{type(error).__name__}: {error}")
        return collected

    dog, cat = text.format("dog"), text.format("cat")
    assert asyncio.run(said(dog, cat, cat))[1:] == asyncio.run(said(cat)) * 2
