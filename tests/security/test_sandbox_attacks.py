"""What the sandbox must withstand: each probe is one program and one property of how it ends.

The probes follow the public record of escapes from sandboxes that run model-written Python. Most are *contained*: the
program ends with a typed error or a harmless answer, and nothing of the host shows in either.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_kit import NARROW, engine
from escapes import ESCAPES, LATER
from sandbox_kit import IMAGES, PRIMITIVES, Kit, answering

from codevqa import CodeVQA
from codevqa.core.errors import ProgramError
from codevqa.sandbox import Sandbox

SECRET = "sk-secret-of-the-host-7f3a"
Args = tuple[Any, ...]

PICTURES = [image.picture for image in IMAGES]


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    with engine(settings=NARROW) as vqa:
        yield vqa


@pytest.mark.parametrize("through", ["engine", "sandbox"])
@pytest.mark.parametrize("probe", [*ESCAPES, *LATER])
def test_refused(
    kit: Kit, vqa: CodeVQA, probe: str, through: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all that a user's program meets, and by the interpreter where the static check has overlooked it."""
    monkeypatch.setenv("CODEVQA_SECRET", SECRET)
    source = {**ESCAPES, **LATER}[probe].replace("TRAP", str(tmp_path / "trap"))
    with pytest.raises(ProgramError) as caught:
        vqa.run(PICTURES, source) if through == "engine" else kit.value(source)
    # Neither paths nor secrets of the host in the message.
    assert SECRET not in str(caught.value)
    assert str(Path(__file__).parents[2]) not in str(caught.value)
    assert "root:" not in str(caught.value)
    assert not list(tmp_path.iterdir())


HARMLESS = {
    # It runs, and what it sees is its own.
    "exec": ("exec('answer = 1 + 1')", 2),
    "eval": ("answer = eval('1 + 1')", 2),
    "cwd": ("import os\nanswer = os.getcwd()", "/"),
    "locals hold no host objects": ("answer = [k for k in locals() if k == 'SECRET']", []),
    "rebinding a builtin": ("len = lambda x: 7\nanswer = len([])", 7),
    "rebinding a primitive": ("query = lambda i, q: 'mine'\nanswer = query(images[0], 'a')", "mine"),
    "rebinding type": ("type = isinstance = len = str = lambda *a: 'x'\nanswer = 'fine'", "fine"),
    "rebinding the prelude": ("__answer__ = __order__ = __best__ = lambda *a: ''\nanswer = sorted([2, 1])", [1, 2]),
    "changing a handle": ("images[0].width = 10**6\nanswer = images[0].width", 10**6),
    "except BaseException": ("try:\n    1 / 0\nexcept BaseException:\n    answer = 'caught'", "caught"),
    "annotation of an argument": ("def f(x: query.__globals__) -> query.__code__:\n    return x\nanswer = f(1)", 1),
    "lying str methods": ("class S:\n    def __eq__(self, o):\n        return True\nanswer = [S() == 1]", [True]),
}


@pytest.mark.parametrize("probe", HARMLESS)
def test_harmless(kit: Kit, probe: str) -> None:
    source, expected = HARMLESS[probe]
    assert kit.value(source) == expected


def test_a_changed_handle_is_still_the_host_s_image(kit: Kit) -> None:
    seen: list[object] = []

    async def host(name: str, args: Args, kwargs: dict[str, Any], line: int | None) -> object:
        seen.append(args[0])
        return "a"

    kit.value("images[0].width = 10**6\nimages[0].index = 3\nanswer = query(images[0], 'a')", host)
    assert seen[0] is IMAGES[0]
    assert (IMAGES[0].width, IMAGES[0].index) == (8, 1)


# -- state, environment ------------------------------------------------------------------------------------------------

CARRIED = [
    ("sorted = 1\nanswer = 1", "answer = sorted([2, 1])[0] / 0"),
    ("import json\njson.dumps = 5\nanswer = 1", "import json\nanswer = json.dumps.nothing"),
    ("def query(i, q):\n    return 'mine'\nanswer = 1", "answer = 1 / (query(images[0], 'a') == 'mine')"),
    ("Image.evil = 1\nanswer = 1", "answer = Image.evil"),
    ("__answer__ = lambda *a: 1 / 0\nanswer = 1", "answer = lambda: 1"),
]


@pytest.mark.parametrize(("first", "second"), CARRIED)
def test_no_state_is_carried_to_the_next_program(first: str, second: str) -> None:
    async def main() -> None:
        async with Sandbox(PRIMITIVES, workers=1) as box:
            for _ in range(3):
                with contextlib.suppress(ProgramError):
                    await box.run(first, answering, images=IMAGES)
                with pytest.raises(ProgramError):
                    await box.run(second, answering, images=IMAGES)

    asyncio.run(main())


def test_random_numbers_start_the_same_in_every_program(kit: Kit) -> None:
    source = "import random\nanswer = [random.random(), random.randint(0, 10**9)]"
    assert kit.value(source) == kit.value(source)
