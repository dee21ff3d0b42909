"""What reads text that somebody else wrote (a model's output, an answer, a run, recorded calls), each given any bytes.

A reader returns, or raises an error of ours; all else is a finding. :mod:`fuzz_readers` looks for one.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import numpy as np

from codevqa import Answer
from codevqa.core.answer_json import digest
from codevqa.core.errors import ErrorRecord, InputError, ModelError
from codevqa.core.images import load_picture
from codevqa.core.question_kind import question_kind
from codevqa.core.text import caption_line, one_line, unmarked
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.engine.call_plan import plan_calls
from codevqa.eval.run.calls import CallStore, State, Stored, key_of
from codevqa.eval.run.recorded_models import RecordedCaptioner, RecordedLM, RecordedMatcher
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Store
from codevqa.eval.run.store_file import FILE
from codevqa.eval.task import Example, Row
from codevqa.models.base import CaptionRequest, GenerationRequest, MatchRequest, SimilarityRequest
from codevqa.primitives.kinds import Image
from codevqa.primitives.reading import answer_in
from codevqa.primitives.witness import described
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


def read_store(data: bytes) -> None:
    """A run with another value in one of its columns, which the first byte says."""
    columns = {
        "info": ("value",),
        "examples": ("images", "gold", "groups", "record", "form", "id", "question"),
        "rows": ("trace", "program", "error", "seconds", "method", "fallback"),
    }
    places = [(table, column) for table, names in columns.items() for column in names]
    table, column = places[data[0] % len(places)] if data else places[0]
    file = _run() / FILE
    with closing(sqlite3.connect(file)) as db:
        before = db.execute(f"SELECT {column} FROM {table}").fetchone()
        db.execute(f"UPDATE {table} SET {column} = ?", (data[1:].decode("utf-8", "replace"),))
        db.commit()
        try:
            with suppress(InputError), Store.open(file) as store:
                list(store.pairs("codevqa")), list(store.examples()), store.changed_picture()
        finally:
            db.execute(f"UPDATE {table} SET {column} = ?", before)
            db.commit()


def read_calls(data: bytes) -> None:
    """Recorded calls of every kind that say other things; the bytes after a newline are an array's."""
    text, _, array = data.partition(b"\n")
    picture = load_picture(_image().picture)
    store, about = _calls()
    asks: Mapping[str, Callable[[], object]] = {
        "generate": lambda: RecordedLM(store, about).generate([GenerationRequest("a", 1)])[0].text.strip(),
        "caption": lambda: RecordedCaptioner(store, about).caption([CaptionRequest(picture)])[0].strip(),
        "match": lambda: RecordedMatcher(store, about).match([MatchRequest(picture, "a")])[0].relevance.max(),
        "similarity": lambda: RecordedMatcher(store, about).similarity([SimilarityRequest(picture, "a")])[0] + 1,
    }
    identity = {"model": about["model"], "settings": about["settings"]}
    contents: Mapping[str, Sequence[object]] = {
        "generate": ["a", 1, []],
        "caption": [picture.key, None, None],
        "match": [picture.key, "a", None],
        "similarity": [picture.key, "a"],
    }
    state = list(State)[len(data) % 3]
    held = Stored(text.decode("utf-8", "replace"), array, state)
    for kind, ask in asks.items():
        key = key_of(kind, identity, contents[kind])
        store._connection.execute("DELETE FROM calls")
        store.put(kind, {key: held})
        with suppress(InputError, ModelError), np.errstate(all="ignore"):
            ask()


READERS: Mapping[str, Callable[[bytes], None]] = {
    "model": read_model,
    "answer": read_answer,
    "store": read_store,
    "calls": read_calls,
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
STARTS: Mapping[str, tuple[str, ...]] = {
    "model": (
        'img = open_image("Image1.jpg")\ncup_x, cup_y = get_pos(img, "cup")\nif cup_y < 12:\n    answer = "yes"',
        "```python\nfor x in images:\n    a = [query(x, f'How many {y}?') for y in 'ab']\nanswer = a\n```\n# Image 2",
        "Is the small red cup or the two dogs to the left of exactly three cats?",
        "How many s are there?",
        "No, there are at least 4 of them.<|im_end|>",
    ),
    "answer": (_ANSWER.to_json(),),
    "store": (
        f"F{RunInfo('gqa', 'val', ('codevqa',)).to_json()}",
        'G[{"path": "a.png", "crop": [0, 1, 2, 3], "digest": "a"}, {"name": "b"}]',
        'G[{"path": "a", "crop": [1e999, 0, 0, 0]}]',
        "F5",
        'F{"dataset": "a", "split": "b", "methods": ["c"], "seeds": [], "settings": "d"}',
        'J{"semantic": [{"operation": "select", "argument": "cup (1)", "dependencies": []}]}',
        'N{"calls": [{"name": "query", "arguments": {"question": "red?"}, "value": "yes"}]}',
    ),
    "calls": (
        '["yes", 3, 1]',
        '"a red cup"',
        '{"dtype": "<f4", "shape": [1, 2], "logit": 0.5}\n01234567',
        "0.25",
        '["ServerError", "it is down", "Wait.", true]',
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
def _run() -> Path:
    folder = Path(tempfile.mkdtemp()) / "run"
    example = Example("a", "Is it red?", (), "image", ("yes",), {"kind": "open"}, "1", {"number": 1})
    trace = {"calls": [{"name": "query", "arguments": {"question": "red?"}, "value": "yes", "error": None}]}
    with Store.create(folder, RunInfo("gqa", "val", ("codevqa",))) as store:
        store.add(example, [Row("a", "codevqa", 0, "yes", trace=trace)])
    return folder


@cache
def _calls() -> tuple[CallStore, dict[str, object]]:
    return CallStore(Path(tempfile.mkdtemp()) / "calls.sqlite"), {"name": "m", "model": "m", "settings": {}}
