"""Whatever is asked of whatever pictures, with whatever program: an answer or an error of ours; nobody else pays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from fuzz_kit import PICTURES, cheap_engine, typed_only
from hypothesis import example, given
from hypothesis import strategies as st

from codevqa import CodeVQA
from codevqa.core.events import Answered, Failed
from codevqa.core.trace import Method

SECONDS = 15
"""A program may compute for one second; the rest is a slow machine's."""


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with cheap_engine() as engine:
        yield engine


# -- programs ----------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(("a", "b", "img", "images", "answer", "query", "get_pos", "len", "print", "_", "x_y"))
TEXTS = st.sampled_from(
    ("Is it red?", "", "cup", "how many s are?", "===", "{0.__class__}", "\\ud800", "a" * 2000, "%s")
)
NUMBERS = st.sampled_from(
    ("0", "1", "-1", "10**9", "2**64", "0.5", "1e400", "float('nan')", "True", "None", "9" * 5000)
)
LEAVES = (
    NAMES | TEXTS.map(lambda text: f'"{text}"') | NUMBERS | st.sampled_from(("images[0]", "images[-9]", "[]", "{}"))
)
SHAPES = (
    *("query({}, {})", "get_pos({}, {})[0]", "find_matching_image({}, {})", "({} + {})", "({} * {})", "({} == {})"),
    *("({} and {})", "({} in {})", "({} % {})", "[{} for a in {}]", "({} if {} else 1)", "{{{}: {}}}", "max({}, {})"),
    *("len({})", "str({})", "sorted({})", "not {}", "{}.lower()", "{}.append(a)", "{}.__class__", "(lambda a: {})"),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda shape, *parts: shape.format(*parts), st.sampled_from(SHAPES), inner, inner),
    max_leaves=8,
)
LINES = st.one_of(
    st.builds("{} = {}".format, NAMES, EXPRESSIONS),
    st.builds("answer = {}".format, EXPRESSIONS),
    st.builds("{}, {} = {}".format, NAMES, NAMES, EXPRESSIONS),
    st.builds("{} += {}".format, NAMES, EXPRESSIONS),
    st.builds("print({})".format, EXPRESSIONS),
    EXPRESSIONS,
    st.sampled_from(("raise ValueError('x')", "pass", "import math", "del a", "break", "return 1", "global answer")),
)
BLOCKS = st.sampled_from(
    ("if {}:", "for a in {}:", "while {}:", "def a(b):\n    {}", "try:\n    {}\nexcept Exception:", "with {} as a:")
)


def _block(head: str, value: str, lines: list[str]) -> str:
    return "\n".join([head.format(value), *(f"    {line}" for text in lines for line in text.split("\n"))])


WILD = st.recursive(
    LINES,
    lambda inner: st.builds(_block, BLOCKS, EXPRESSIONS, st.lists(inner, min_size=1, max_size=3)),
    max_leaves=4,
)
GIVEN = ["x = images[0]", "t = 'cup'", "n = 1", "b = True"]
NOISE = st.sampled_from(("\0", "\ud800", "(" * 200, "'" * 3, "\\", "\t", "\r", "\u202e", "ｅｘｅｃ", "@", ";", "#"))
PROGRAMS = st.builds(
    lambda lines, last: "\n".join([*GIVEN, *lines, last]),
    st.lists(LINES | WILD | NOISE, max_size=5),
    st.sampled_from(("", "answer = t", "answer = 'yes'")),
)


@pytest.mark.slow
@given(PROGRAMS, st.integers(1, 3))
@example("answer = query(img, 'How many s are?')", 1)
def test_a_program_ends_in_an_answer_or_an_error_of_ours_in_bounded_time(vqa: CodeVQA, source: str, count: int) -> None:
    began = time.perf_counter()
    with typed_only():
        assert vqa.run(PICTURES[:count], source).text
    assert time.perf_counter() - began < SECONDS


# -- questions ---------------------------------------------------------------------------------------------------------

WORDS = ("is", "there", "a", "red", "cup", "or", "and", "how many", "s", "are", "no", "exactly", "two", "?", ",", "the")
MARKS = (*("\0", "\ud800", "\u202e", "\x1b[31m", "<|im_end|>", "</s>", "\n===\n", "Q:", "A:", "# Image 3:", "\x85"),)
QUESTIONS = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from((*WORDS, *WORDS, *MARKS)), max_size=14).map(" ".join),
    st.builds(lambda part, times: part * times, st.sampled_from((*WORDS, *MARKS, " ", "é")), st.integers(1, 100_000)),
)
ODD: Any = st.sampled_from((None, 1, 1.5, b"a?", [], {}, object(), True))


@given(QUESTIONS, st.sampled_from(get_args(Method)), st.integers(1, 2))
@example("x" * 100_000, "codevqa", 1)
def test_a_question_ends_in_an_answer_or_an_error_of_ours(vqa: CodeVQA, text: str, method: Method, count: int) -> None:
    began = time.perf_counter()
    with typed_only():
        assert vqa.ask(PICTURES[:count], text, method=method).text
    with typed_only():
        vqa.prompt(text)
    assert time.perf_counter() - began < SECONDS


@given(
    ODD | st.just("Is it red?"),
    ODD | st.just(PICTURES[0]) | st.lists(ODD | st.just(PICTURES[0]), max_size=2),
    st.dictionaries(st.sampled_from(("form", "method", "seed", "shots", "memory")), ODD | st.text(max_size=4)),
)
def test_what_is_of_another_kind_is_an_error_of_ours(vqa: CodeVQA, text: Any, picture: Any, options: Any) -> None:
    with typed_only():
        vqa.ask(picture, text, **options)
    last = list(vqa.watch(picture, text, **options))[-1]
    assert isinstance(last, Answered | Failed)
    options.pop("method", None), options.pop("shots", None)
    with typed_only():
        vqa.run(picture, text, question=text, **options)
    with typed_only():
        vqa.prompt(text, form=options.get("form", "image"))
