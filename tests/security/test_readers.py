"""Text that somebody else wrote is read, or refused by an error of ours: a completion, prompts, settings, questions.

``corpus/`` holds inputs that once found new ways through the readers; their characters are bytes.
"""

# ruff: noqa: E501 -- a program reads best on one line

import json
import shutil
import sys
import tempfile
import tomllib
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest
from fuzz_kit import CORPUS, typed_only
from hypothesis import given
from hypothesis import strategies as st
from sandbox_kit import IMAGES as PICTURES

from codevqa import prompts
from codevqa.cli import questions_file
from codevqa.cli.models import config_lines
from codevqa.cli.options import choose_options
from codevqa.core.errors import InputError, SetupError
from codevqa.core.images import load_picture
from codevqa.core.input_files import parse_json, pictures_and_question
from codevqa.core.question_kind import question_kind
from codevqa.core.text import break_control_tokens, caption_line, one_line
from codevqa.engine.call_plan import MAX_TEXT, CallPlan
from codevqa.eval.datasets import open_dataset
from codevqa.presets.configuration import configure
from codevqa.primitives.kinds import Image
from codevqa.primitives.witness import describe_question
from codevqa.prompts import load_prompt_set
from codevqa.sandbox.program_tree import shape
from codevqa.writing.mending import with_answer
from codevqa.writing.prompt_forms import ask_in_chat
from codevqa.writing.replies import extract_program

NAMES = ("query", "get_pos", "find_matching_image")
ASKED = "Is there a red cup or a small dog in the left image?"
PROGRAMS = [example.program for name in ("gqa", "covr") for example in load_prompt_set(name).examples]
_DATASETS = (
    *(("gqa", "test_all_questions.json"), ("nlvr2", "data/test.json"), ("nlvr", "test/test.json")),
    ("covr", "test.jsonl"),
)
_HOSTILE = (
    *("", "\0", "[" * 5000, "a = " + "[" * 5000, '{"a":' * 300 + "1" + "}" * 300, '{"id": ' + "1" * 5000 + "}"),
    *("seed = " + "1" * 5000, json.dumps({"k" * 5000: 1}), "k" * 5000 + " = 1"),
    json.dumps({"id": "\ud800", "question": "\0", "images": ["a" * 5000]}),
)
"""What a file may hold that breaks a reader that is not careful."""


def read_model(data: bytes) -> None:
    """A completion: as a program, as an answer, and as what a program asks next."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = str(data)
    for continued in (False, True):
        source = with_answer(extract_program(text, continued=continued))
        CallPlan(source, [_image()], frozenset(NAMES)).calls()
        shape(source, NAMES)
    kind = question_kind(text)
    for asked in (kind, question_kind(ASKED)):
        asked.misfit(asked.fit(asked.read(text) or ""))
    describe_question(text), ask_in_chat(text, True)
    assert break_control_tokens(one_line(text)) == one_line(text) and "\n" not in caption_line(text)


def read_prompts(data: bytes) -> None:
    """A folder of prompts with another file in it, which the first byte says, or one of the paper's release."""
    folder = _prompts()
    file = ("prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl", "gqa_pool.json")[
        data[0] % 5 if data else 0
    ]
    before = (folder / file).read_bytes() if (folder / file).exists() else b""
    (folder / file).write_bytes(data[1:])
    try:
        with suppress(InputError):
            load_prompt_set(folder / file if file == "gqa_pool.json" else folder)
    finally:
        (folder / file).write_bytes(before)


def read_configuration(data: bytes) -> None:
    """A file of a configuration, and its text as a value of the command line: what is read can be printed."""
    file = _prompts() / "my.toml"
    file.write_bytes(data)
    with suppress(InputError, SetupError):
        shown = "\n".join(config_lines(configure(str(file))))
        assert tomllib.loads(shown)
    with suppress(InputError, SetupError):
        choose_options(sets=[data.decode("utf-8", "surrogateescape").replace("\0", "")]).configure()


def read_questions(data: bytes) -> None:
    """A file of questions."""
    file = _prompts() / "questions.jsonl"
    file.write_bytes(data)
    with suppress(InputError):
        lines = questions_file.read_questions(str(file))
        for number, line in lines:
            with suppress(InputError):
                "".join(map(str, pictures_and_question(parse_json(line, file.name, number), "a line"))).encode()
    with suppress(InputError, SetupError):
        list(open_dataset(str(file)))


def read_dataset(data: bytes) -> None:
    """The questions of a data set, which the first byte says: what is read can be kept."""
    name, file = _DATASETS[data[0] % len(_DATASETS) if data else 0]
    folder = _prompts() / name
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data[1:])
    with suppress(InputError, SetupError):
        for example in islice(open_dataset(name, folder, "test", pictures=False), 20):
            json.dumps([example.id, example.question, example.gold, example.record], default=str).encode()


_READERS = (read_model, read_prompts, read_configuration, read_questions, read_dataset)
READERS = {reader.__name__.removeprefix("read_"): reader for reader in _READERS}


@pytest.mark.parametrize("reader", READERS)
def test_any_text_is_read_or_an_error_of_ours(reader: str) -> None:
    kept = json.loads((CORPUS / f"{reader}.json").read_text())
    hostile = [f"{number}{text}" for number in range(5) for text in _HOSTILE]
    for text in (*kept, *hostile, *_HOSTILE):
        with typed_only():
            READERS[reader](text.encode("latin-1", "replace"))


@given(
    st.sampled_from(PROGRAMS), st.integers(0, 400), st.integers(0, 9), st.text(max_size=9) | st.sampled_from(PROGRAMS)
)
def test_any_completion_is_read(program: str, at: int, gone: int, other: str) -> None:
    text = program[:at] + other + program[at + gone :]
    read_model(text.encode("utf-8", "surrogatepass"))


@cache
def _image() -> Image:
    from PIL import Image as PILImage

    return Image(1, load_picture(PILImage.new("RGB", (8, 6))))


@cache
def _prompts() -> Path:
    folder = Path(tempfile.mkdtemp()) / "prompts"
    shutil.copytree(Path(prompts.__file__).parent / "gqa", folder)
    read = {"question_id": 1, "question": "Is it?", "answer": "yes", "captions": "a dog"}
    (folder / "gqa_examples1.json").write_text(json.dumps([read]))
    return folder


WANTED = {"query", "get_pos", "find_matching_image"}


def calls(source: str) -> list[object]:
    """Returns the second argument of each planned call."""
    return [call.args[1] for call in CallPlan(source, PICTURES, WANTED).calls()]


DOUBLING = (
    "a = 'x'\nfor i in ["
    + "0," * 60
    + "]:\n    a = {}\nquery(images[0], a)\nfind_matching_image(a, 'x')\nanswer = len(a)"
)


ATTACKS = {
    "shared lists": DOUBLING.format("[a, a]"),
    "shared tuples": DOUBLING.format("(a, a)"),
    "numbered lists": "a = images\n" + DOUBLING.partition("\n")[2].format("enumerate(a)"),
    "doubled text": DOUBLING.format("f'{a}{a}'"),
    "loops": "for a in [" + "1," * 3000 + "]:\n    for b in [a, a]:\n        query(images[0], 'a')",
    "many loops": "".join(" " * n + f"for a{n} in [1, 2, 3, 4]:\n" for n in range(60)) + " " * 60 + "query(images[0], 'a')",
    "many ranges": "answer = [0 " + "for a in b " * 700 + "]",
    "names": "=".join(f"a{n}" for n in range(1500)) + " = 1\nfor a in [" + "0," * 64 + "]:\n    for b in [" + "0," * 64 + "]:\n        if a:\n            b = 1",
    "a huge number": "answer = f'{0x" + "f" * 6000 + "}'",
    "a huge list": "a = [" + "1," * 3000 + "]\nfor b in a:\n    for c in a:\n        a = a[:]",
    "brackets": "answer = " + "[" * 4000 + "]" * 4000,
    "signs": "x = " + "-" * 7000 + "1",
    "items": "answer = a" + "[0]" * 2600,
    "a comment": "#" * 10_000 + "\nquery(images[0], 'a')",
}  # fmt: skip


@pytest.mark.parametrize("source", ATTACKS.values(), ids=ATTACKS.keys())
def test_a_program_that_is_too_much_is_left_alone_after_so_many_steps(source: str) -> None:
    steps = 0

    def count(frame: FrameType, event: str, held: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")
        assert steps < 200_000

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        planned = CallPlan(source, PICTURES, WANTED).calls()
    finally:
        sys.setprofile(before)
    assert len(planned) <= 4000
    assert all(len(text) <= MAX_TEXT for call in planned for text in call.args if isinstance(text, str))
    assert shape(source, WANTED) is None or len(shape(source, WANTED) or "") < 20_000


def test_texts_and_lists_are_followed_until_they_are_too_large() -> None:
    doubled = "a = 'x'\nfor i in [{}]:\n    a = f'{{a}}{{a}}'\nquery(images[0], a)"
    assert calls(doubled.format("0," * 9)) == [512 * "x"]
    assert calls(doubled.format("0," * 10)) == []
    assert len(calls("for n in [" + "n, " * 2000 + "]:\n    get_pos(images[0], 'a')")) < 1000
    program = "query(images[0], 'a')\n"
    assert calls(program + "#" * 8000) == ["a"]
    assert calls(program + "#" * 8192) == [] and shape(program + "#" * 8192, WANTED) is None
