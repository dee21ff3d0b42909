"""Readers of text that somebody else wrote: a model's output, an answer, prompts, settings, questions.

A reader returns, or raises an error of ours; all else is a finding.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path

from codevqa import Answer, prompts
from codevqa.cli import questions_file
from codevqa.cli.models import config_lines
from codevqa.cli.options import chosen
from codevqa.core.answer_json import digest
from codevqa.core.errors import ErrorRecord, InputError, SetupError
from codevqa.core.images import load_picture
from codevqa.core.question_kind import question_kind
from codevqa.core.text import caption_line, one_line, unmarked
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.engine.call_plan import plan_calls
from codevqa.eval.datasets import open_dataset
from codevqa.presets.configuration import configure
from codevqa.primitives.kinds import Image
from codevqa.primitives.reading import answer_in
from codevqa.primitives.witness import described
from codevqa.prompts import load, load_examples
from codevqa.sandbox.program_shape import shape
from codevqa.writing.mending import with_answer
from codevqa.writing.prompt_forms import ask_in_chat, extract_program

NAMES = ("query", "get_pos", "find_matching_image")
ASKED = "Is there a red cup or a small dog in the left image?"


def read_model(data: bytes) -> None:
    """A completion: as a program, as an answer, and as what a program asks next."""
    text = data.decode("utf-8", "surrogatepass" if b"\xed" in data else "replace") if _is_text(data) else str(data)
    for continued in (False, True):
        source = with_answer(extract_program(text, continued=continued))
        plan_calls(source, [_image()], frozenset(NAMES))
        shape(source, NAMES)
    kind = question_kind(text)
    for asked in (kind, question_kind(ASKED)):
        asked.misfit(asked.fitted(answer_in(text, asked)))
    described(text), ask_in_chat(text, True)
    assert unmarked(one_line(text)) == one_line(text) and "\n" not in caption_line(text)


def read_answer(data: bytes) -> None:
    """An answer's JSON: what is read can be written again."""
    with suppress(InputError):
        answer = Answer.from_json(data.decode("utf-8", "replace"))
        digest(answer)
        assert Answer.from_json(answer.to_json()) == answer


def read_prompts(data: bytes) -> None:
    """A folder of prompts with another file in it, which the first byte says, or one of the paper's release."""
    folder = _prompts()
    file = ("prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl", "pool.json")[data[0] % 5 if data else 0]
    before = (folder / file).read_bytes() if (folder / file).exists() else b""
    (folder / file).write_bytes(data[1:])
    try:
        with suppress(InputError):
            load(folder) if file != "pool.json" else load_examples(folder / file)
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
        chosen(sets=[data.decode("utf-8", "surrogateescape").replace("\0", "")]).configure()


def read_questions(data: bytes) -> None:
    """A file of questions."""
    file = _prompts() / "questions.jsonl"
    file.write_bytes(data)
    with suppress(InputError):
        found = questions_file.read_questions(str(file))
        for number, line in found.lines:
            with suppress(InputError):
                "".join(map(str, questions_file._parse(line, found.name, number))).encode()


def read_dataset(data: bytes) -> None:
    """The questions of a data set, which the first byte says: what is read can be kept."""
    name, file = _DATASETS[data[0] % len(_DATASETS) if data else 0]
    folder = _prompts() / name
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data[1:])
    with suppress(InputError, SetupError):
        for example in islice(open_dataset(name, folder, "test", pictures=False), 20):
            json.dumps([example.id, example.question, example.gold, example.record], default=str).encode()


READERS: Mapping[str, Callable[[bytes], None]] = {
    "model": read_model,
    "answer": read_answer,
    "prompts": read_prompts,
    "configuration": read_configuration,
    "questions": read_questions,
    "dataset": read_dataset,
}


_CALL = Call(
    1,
    "query",
    {"img": ImageRef(1)},
    ("yes", {1: 0.5}),
    0.1,
    1,
    (Evidence("itm", position=(1.0, 2.0)),),
    remembered=True,
)
_ANSWER = Answer(
    "Is it?", "yes", Program("answer = 1"), Trace((_CALL,)), [ImageRef(1), 1e999], error=ErrorRecord("ModelError", "no")
)
_HOSTILE = (
    "\ufeff{}",
    "",
    "\0",
    "[" * 5000,
    "a = " + "[" * 5000,
    '{"a":' * 300 + "1" + "}" * 300,
    '{"id": ' + "1" * 5000 + "}",
    "seed = " + "1" * 5000,
    json.dumps({"id": "\ud800", "question": "\0", "images": ["a" * 5000]}),
    json.dumps({"k" * 5000: 1}),
    "k" * 5000 + " = 1",
)
"""What a file may hold that breaks a reader that is not careful."""
_DATASETS = (
    ("gqa", "test_all_questions.json"),
    ("nlvr2", "data/test.json"),
    ("nlvr", "test/test.json"),
    ("covr", "test.jsonl"),
)
STARTS: Mapping[str, tuple[str, ...]] = {
    "model": (
        'img = open_image("Image1.jpg")\ncup_x, cup_y = get_pos(img, "cup")\nif cup_y < 12:\n    answer = "yes"',
        "```python\nfor x in images:\n    a = [query(x, f'How many {y}?') for y in 'ab']\nanswer = a\n```\n# Image 2",
        "Is the small red cup or the two dogs to the left of exactly three cats?",
        "How many s are there?",
        "No, there are at least 4 of them.<|im_end|>",
    ),
    "answer": (_ANSWER.to_json(),),
    "prompts": (
        *(f"{number}{text}" for number in "01234" for text in _HOSTILE),
        'P{"name": "a", "form": "image", "shots": 1, "captions": 1, "caption_draws": 1, "reading_shots": 1,'
        ' "primitives": ["query"], "licence": "a", "about": "b", "caption_tokens": [1, 2]}',
        'R{"id": "a", "question": "Is it?", "program": "answer = query(img, \'Is it?\')", "form": "image"}',
        'S{"id": 1, "question": "Is it?", "captions": [["a"], ["b"]], "answer": "yes"}',
        'T{"1": {"question": "Is it?", "program": "# Image 1: Is it?\\nimg = open_image(1)\\nanswer = 1"}}',
        "T" + json.dumps([{"id": 1, "question": "a", "program": "-" * 50_000 + "1"}]),
    ),
    "configuration": (
        *_HOSTILE,
        'preset = "base"\nseed = 0xff\n[query]\ncaptions = 3\n[matcher]\nspec = "blip:a"\ndtype = "float32"',
        "workers = 0x" + "F" * 20_000,
        'writer.rules = ["one_answer", "none"]',
    ),
    "questions": (
        *_HOSTILE,
        '{"images": ["a.png", "b.png"], "question": "Is it?"}\n\n{"images": "a", "question": "b"}',
    ),
    "dataset": (
        *(f"{number}{text}" for number in "0123" for text in _HOSTILE),
        '0{"1": {"imageId": "2", "question": "Is it?", "answer": "no", "types": {"structural": "verify"}}}',
        '1{"identifier": "test1-0-1-0", "sentence": "It is.", "label": "False"}',
        '2{"sentence": "It is.", "label": "true", "identifier": "1-0", "directory": "2", "structured_rep": [[]]}',
        '3{"qid": "a_1", "utterance": "Is it?", "scenes": ["7"], "answer": true, "program": []}',
    ),
}


def seeds(name: str) -> list[bytes]:
    """Returns what campaigns begin with, and what they kept."""
    file = Path(__file__).with_name("corpus") / f"{name}.json"
    kept = [text.encode("latin-1") for text in json.loads(file.read_text())] if file.exists() else []
    return [*map(str.encode, STARTS[name]), *kept]


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


@cache
def _image() -> Image:
    from PIL import Image as PILImage

    return Image(1, load_picture(PILImage.new("RGB", (8, 6))))


@cache
def _prompts() -> Path:
    folder = Path(tempfile.mkdtemp()) / "prompts"
    shutil.copytree(Path(prompts.__file__).parent / "gqa", folder)
    return folder
