"""What a program may use where nobody has said anything: through an engine with the settings that it comes with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_kit import engine
from sandbox_kit import IMAGES

from codevqa import CodeVQA, Limits, Settings
from codevqa.core.errors import ProgramLimitError

TOO_MUCH = {
    "seconds": ("while True:\n    pass\nanswer = 1", "computed longer than 2 seconds"),
    "memory": ("answer = len('a' * (65 << 20))", "more than 67,108,864 bytes of memory"),
    "calls": ("while True:\n    answer = get_pos(img, 'a')", "more than 200 calls"),
    "output": ("print('a' * (65 << 10))\nanswer = 1", "printed more than 65,536 bytes"),
    "source": ("#" * (65 << 10) + "\nanswer = 1", "the limit is 65,536"),
    "recursion": ("def f(n):\n    return f(n - 1) if n else 0\nanswer = f(250)", "itself more than 200 deep"),
}


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with engine(settings=Settings()) as made:
        yield made


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit", TOO_MUCH)
def test_the_limits_are_these_where_nothing_else_is_said(vqa: CodeVQA, limit: str) -> None:
    picture = IMAGES[0].picture
    source, says = TOO_MUCH[limit]
    with pytest.raises(ProgramLimitError, match=says):
        vqa.run(picture, source)


def test_two_minutes_and_an_hour_of_waiting_are_the_longest_run() -> None:
    assert (Limits().wall_seconds, Limits().model_seconds) == (120, 3600)
