"""Programs and questions that nobody would write: each ends in an answer or in an error of ours, in bounded time."""

# ruff: noqa: E501 -- a piece reads best on one line

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator

import pytest
from cli_kit import Engines
from engine_kit import reading_yes
from PIL import Image as PILImage

from codevqa import CodeVQA, Question
from codevqa.core import errors
from codevqa.core.errors import ProgramError
from codevqa.core.images import load_picture
from codevqa.engine.call_plan import plan_calls
from codevqa.presets.configuration import Layer, configure
from codevqa.primitives.kinds import Image
from codevqa.prompts import load
from codevqa.sandbox.program_shape import shape
from codevqa.writing.mending import with_answer
from codevqa.writing.prompt_forms import extract_program

NAMES = ("query", "get_pos", "find_matching_image")

PICTURES = [PILImage.new("RGB", (40, 30), colour) for colour in ("red", "green")]
PROGRAMS = [example.program for name in ("gqa", "covr", "nlvr2", "nlvr") for example in load(name).examples]
PIECES = (
    "9" * 5000, "0x" + "f" * 3600, "-" * 900, "(" * 150, "[" * 300, "]" * 20, "'", '"""', "\\", "\0", "\ud800", "\udfff",
    "\u202e", "é", "ｅｘｅｃ", "\t", "\f", "\r", "\ufeff", "1e400", "float('nan')", "10**10**9", "2**64", "-1", "None", "...",
    "lambda: ", "yield ", "await ", "async ", "*", "**", "@", ":=", "->", "match x:\n    case ", "class A(", "def f(a, /, *b, **c):",
    "while True:\n    ", "for i in range(10**9):\n    ", "try:\n    ", "finally:\n    ", "except* E:\n    ", "with a as b:\n    ",
    "import os\n", "__import__('os')", ".__class__", ".__globals__", "{0.__class__}", "f'{x!r:>{w}}'", "%s" * 500, "a,b,*c=",
    "global answer\n", "nonlocal x\n", "del query\n", "query=len\n", "images[-1]", "images[10**9]", "open_image('/etc/passwd')",
    "find_matching_image([], '')", "get_pos(img, '')", "query(img, 'x' * 10**6)", "query(images, 'a')", "raise TimeoutError('time limit exceeded')",
    "raise SystemExit\n", "raise MemoryError('memory limit')\n", "assert 0, query\n", "answer = answer\n", "answer = query\n", "answer = [images]\n",
    "answer = {1: {2: {3: images}}}\n", "a = []\na.append(a)\nanswer = a\n", "print('=' * 10**6)\n", "if 1 < 2 < 3 < 4" + " < 5" * 300 + ":\n    ",
    "[[x for x in range(64)] for y in range(64)]", "and " * 300, "not " * 900, "a" * 60_000, "#" * 60_000 + "\n", ";" * 400,
)  # fmt: skip


def hostile(seed: int) -> str:
    """Returns a program made from a good one."""
    draw = random.Random(seed)
    source = draw.choice(PROGRAMS)
    for _ in range(draw.randint(1, 3)):
        parts = re.split(r"(\W)", source)
        place, other = draw.randrange(len(parts)), draw.randrange(len(parts))
        lines = source.split("\n")
        match draw.randrange(6):
            case 0:
                parts[place] = draw.choice(PIECES)
            case 1:
                parts.insert(place, draw.choice(PIECES))
            case 2:
                parts[place], parts[other] = parts[other], parts[place]
            case 3:
                del parts[place : place + draw.randint(1, 6)]
            case 4:
                parts = list(
                    "\n".join([*lines[: place % len(lines)], draw.choice(PIECES), *lines[place % len(lines) :]])
                )
            case _:
                parts *= draw.choice((2, 2, 30))
        source = "".join(parts)[:100_000]
    return source


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with reading_yes() as engine:
        yield engine


SHARES = [range(150), *(pytest.param(range(at, at + 1000), marks=pytest.mark.slow) for at in (0, 1000, 2000))]


@pytest.mark.parametrize("seeds", SHARES, ids=lambda seeds: f"{seeds.start}-{seeds.stop}")
def test_a_hostile_program_ends_in_an_answer_or_an_error_of_ours(seeds: range, vqa: CodeVQA) -> None:
    answered = 0
    for seed in seeds:
        source = hostile(seed)
        began = time.perf_counter()
        try:
            vqa.run(PICTURES[: 1 + seed % 2], source)
        except ProgramError as error:
            assert "\n" not in str(error) and len(str(error)) < 1000, seed
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        else:
            answered += 1
        assert time.perf_counter() - began < 15, seed
    assert 0.01 < answered / len(seeds) < 0.9, "some of them run, or nothing is tried"


@pytest.mark.timing
def test_what_reads_a_program_on_the_event_loop_is_done_soon() -> None:
    images = [Image(number, load_picture(picture)) for number, picture in enumerate(PICTURES, 1)]
    shared = "a='x'\nfor i in range(60): a=[a,a]\nanswer=len(a)"
    nested = ["[" * depth + "query(img, 'a')" + "]" * depth for depth in (10, 90)]
    longest = ["x = 1\n" * 400, "if a:\n    answer = 'yes'\n" * 200, "answer = " + " + ".join(nested * 20)]
    for source in (shared, *longest, *map(hostile, range(400))):
        program = extract_program(source)
        for step in (
            lambda: with_answer(program),  # noqa: B023 -- called at once
            lambda: plan_calls(program, images, frozenset(NAMES)),  # noqa: B023
            lambda: shape(program, NAMES),  # noqa: B023
        ):
            assert min(_seconds(step) for _ in range(3)) < 0.2, program[:200]


def _seconds(step: Callable[[], object]) -> float:
    """Returns what a step costs this thread; a collection of garbage that falls into one is no part of it."""
    began = time.thread_time()
    with contextlib.suppress(ProgramError):
        step()
    return time.thread_time() - began


WORDS = (
    "is",
    "the",
    "red",
    "cup",
    "\0",
    "\ud800",
    "\udfff",
    "\u202e",
    "\x1b[31m",
    "<|im_end|>",
    "</s>",
    "===",
    "Q:",
    "A:",
    "#",
)
LETTERS = "aé漢\U0001f600\u0301\u200d \t\n\r\f\"'`\\{}%$<>|[]()?!.,;:=*_~^&@\x7f\x9b\ufffe\U0010ffff"


@pytest.mark.slow
def test_any_text_is_a_question_or_an_error_of_ours(engines: Engines) -> None:
    asking = engines.configured(configure("mini", [Layer("test", {"strict_domain": False})]))  # whatever the words
    texts = []
    for seed in range(30):
        draw = random.Random(seed)
        parts = [
            draw.choice(WORDS) if draw.random() < 0.6 else draw.choice(LETTERS) for _ in range(draw.randint(0, 30))
        ]
        texts.append(draw.choice(("", " ")).join(parts))
    answers = asking.ask_many([Question(PICTURES[0], text) for text in texts])
    assert len(answers) == len(texts)
    for answer in answers:
        assert answer.error is None or issubclass(getattr(errors, answer.error.type), errors.CodeVQAError), answer.error
    assert sum(bool(answer.text) for answer in answers) > 5
