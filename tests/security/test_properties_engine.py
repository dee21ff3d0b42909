"""Whatever is asked of whatever pictures, with whatever program: an answer or an error of ours; nobody else pays."""

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
from codevqa.prompts import load

SECONDS = 15
"""A program may compute for one second; the rest is a slow machine's."""


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with cheap_engine() as engine:
        yield engine


WRITTEN = [example.program for name in ("gqa", "covr") for example in load(name).examples]
PIECES = st.text(max_size=9) | st.sampled_from(
    (
        *("images[-9]", "query", "answer", "1e400", "None", "9" * 5000, "'a' * 2000", ".__class__", "(" * 200, "'" * 3),
        *("\n", "\n    ", "while 1:\n    ", "try:\n    ", "lambda a: ", "del a\n", "\0", "\ud800", "\\", "\u202e"),
    )
)
CHANGES = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9), PIECES), max_size=4)
"""Where a program is changed, how much is taken out, and what is put in."""


@pytest.mark.slow
@given(st.sampled_from(WRITTEN), CHANGES, st.integers(1, 3))
@example("answer = query(img, 'How many s are?')", [], 1)
def test_a_program_ends_in_time(vqa: CodeVQA, source: str, changes: list[tuple[int, int, str]], count: int) -> None:
    for at, gone, put in changes:
        source = source[:at] + put + source[at + gone :]
    began = time.perf_counter()
    with typed_only():
        assert vqa.run(PICTURES[:count], source).text
    assert time.perf_counter() - began < SECONDS


PARTS = st.text(max_size=9) | st.sampled_from(
    (
        *("is", "there", "a", "red", "cup", "or", "how many", "s", "are", "exactly", "two", "?", ",", "the", " ", "no"),
        *("\0", "\ud800", "\u202e", "\x1b[31m", "<|im_end|>", "</s>", "\n===\n", "Q:", "A:", "# Image 3:", "\x85"),
    )
)
QUESTIONS = st.lists(PARTS, max_size=14).map(" ".join)
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
