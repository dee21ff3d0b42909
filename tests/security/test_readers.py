"""What campaigns kept is read again, and other bytes beside it."""

from __future__ import annotations

import pytest
from fuzz_kit import typed_only
from hypothesis import given
from hypothesis import strategies as st
from readers import READERS, seeds

from codevqa.prompts import load

PROGRAMS = [example.program for name in ("gqa", "covr") for example in load(name).examples]


@pytest.mark.parametrize("reader", READERS)
def test_what_campaigns_kept_is_read_or_an_error_of_ours(reader: str) -> None:
    kept = seeds(reader)
    assert kept, "a campaign keeps what it found"
    for data in kept:
        with typed_only():
            READERS[reader](data)


@given(
    st.sampled_from(PROGRAMS), st.integers(0, 400), st.integers(0, 9), st.text(max_size=9) | st.sampled_from(PROGRAMS)
)
def test_any_completion_is_read(program: str, at: int, gone: int, other: str) -> None:
    text = program[:at] + other + program[at + gone :]
    READERS["model"](text.encode("utf-8", "surrogatepass"))
