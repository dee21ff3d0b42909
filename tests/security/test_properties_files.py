"""Files that somebody else wrote (pictures, answers, runs, recorded calls) are read, or refused by an error of ours."""

import io
import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from eval_kit import Numbered, fake_engine
from fuzz_kit import CORPUS, PICTURES, cheap_engine, typed_only
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from codevqa import Answer, Settings
from codevqa.collections.disk_memory import CALLS
from codevqa.core.images import FORMATS, MAX_PIXELS, load_picture
from codevqa.core.trace import Method
from codevqa.eval.report import report
from codevqa.eval.run.record import record_parts, replay_engine
from codevqa.eval.run.runner import evaluate
from codevqa.eval.run.store import FILE, Store
from codevqa.models.fakes import FakeEyes
from codevqa.prompts import load_prompt_set

EDGES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\1", b"\xff\xff\xff\x7f", b"\1\0\0\0", b"")
PUT = st.sampled_from(EDGES) | st.binary(max_size=4)
CUTS = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.integers(0, 20), PUT), min_size=1, max_size=6)
"""Where, whether among the first bytes, how much is taken out, and what is put in."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from((10**400, -1, 2**63, 1e999, -1e999, float("nan"), 0.5, "", "\ud800", "\0", "a\nb", "int", "nan"))
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
SPOILT = st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(("set", "drop", "swap")), JSON), max_size=3)
"""Which value of a tree, what is done to it, and what it becomes."""


def cut(data: bytes, cuts: list[tuple[float, bool, int, bytes]]) -> bytes:
    """Returns bytes with others in them."""
    spoilt = bytearray(data)
    for share, early, gone, insertion in cuts:
        at = int(share * min(len(spoilt), 300 if early else len(spoilt)))
        spoilt[at : at + gone] = insertion
    return bytes(spoilt)


def spoil(tree: Any, changes: list[tuple[int, str, Any]]) -> Any:
    """Returns a JSON tree with other values in it."""
    tree = json.loads(json.dumps(tree))
    for number, how, value in changes:
        places = list(_places(tree))
        if not places:
            return value
        held, key = places[number % len(places)]
        if how == "drop":
            del held[key]
        else:
            other, there = places[(number // 7) % len(places)]
            held[key] = json.loads(json.dumps(other[there])) if how == "swap" else value
    return tree


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key, item in list(
        tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    ):
        yield tree, key
        yield from _places(item)


@cache
def encoded() -> list[bytes]:
    kinds: list[tuple[str, str, dict[str, Any]]] = [(kind, mode, {}) for kind in FORMATS for mode in ("RGB", "L")]
    kinds += [("PNG", "P", {}), ("WEBP", "RGBA", {}), ("TIFF", "1", {}), ("TIFF", "RGB", {"compression": "tiff_lzw"})]
    several = {"save_all": True, "append_images": PICTURES[1:]}
    kinds += [(kind, "RGB", several) for kind in ("GIF", "PNG", "WEBP", "TIFF", "MPO")]
    files = []
    for kind, mode, more in kinds:
        buffer = io.BytesIO()
        Image.effect_noise((40, 30), 50).convert(mode).save(buffer, kind, **more)
        files.append(buffer.getvalue())
    return files


def read_picture(data: bytes) -> None:
    began = time.perf_counter()
    with typed_only():
        picture = load_picture(data).pixels
        assert picture.width * picture.height <= MAX_PIXELS and picture.mode == "RGB"
    assert time.perf_counter() - began < 20


@given(st.data(), CUTS)
def test_spoilt_bytes_are_a_picture_or_an_error_of_ours(data: st.DataObject, cuts: Any) -> None:
    read_picture(cut(data.draw(st.sampled_from(encoded())), cuts))


@pytest.mark.parametrize("path", sorted(CORPUS.glob("picture-*")), ids=lambda path: path.name)
def test_a_picture_that_was_trouble_is_none(path: Path) -> None:
    read_picture(path.read_bytes())


@cache
def answers() -> tuple[Answer, ...]:
    program = "a = [query(x, 'Is it red?') for x in images]\nanswer = {1: (a, images[0]), 'x': 0.5}"
    with cheap_engine(program) as vqa:
        return (
            vqa.ask(PICTURES, "Are all red?"),
            vqa.ask(PICTURES[0], "Is it red?"),
            vqa.ask(PICTURES, "A?", method="pnpvqa"),
        )


def read_json(text: str) -> None:
    with typed_only():
        answer = Answer.from_json(text)
        assert Answer.from_json(answer.to_json()) == answer
        answer._repr_html_()


@given(st.integers(0, 2), SPOILT)
@example(1, [(1607, "swap", None)])
@example(2, [(14, "set", float("nan"))])
def test_a_spoilt_answer_is_one_that_can_be_written_or_an_error_of_ours(number: int, changes: Any) -> None:
    read_json(json.dumps(spoil(answers()[number].to_dict(), changes)))


CELL = (
    JSON.map(lambda value: value if isinstance(value, str) else json.dumps(value)) | st.binary(max_size=6) | st.floats()
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Settings]:
    """A run of three questions with its calls on record, and its engine's settings."""
    folder = tmp_path_factory.mktemp("run")
    engine = fake_engine(eyes=FakeEyes())
    with closing(engine), record_parts(folder / "run", engine.writer, engine.models, engine.settings) as vqa:
        evaluate(vqa, Numbered(folder, 3), folder / "run", methods=get_args(Method)).close()
    return folder / "run", engine.settings


def spoil_cell(file: Path, number: int, changes: Any, cell: object) -> None:
    """Changes one value of a database: what is JSON stays JSON, or another value takes its place."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        columns = [(table, row[1]) for table in tables for row in db.execute(f"PRAGMA table_info({table})")]
        table, column = columns[number % len(columns)]
        known = db.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        if changes and known and isinstance(known[0], str) and known[0].startswith(("[", "{")):
            cell = json.dumps(spoil(json.loads(known[0]), changes))
        if isinstance(cell, str):
            cell = cell.encode("utf-8", "replace").decode()
        with suppress(sqlite3.IntegrityError):  # what the file itself does not take
            db.execute(f"UPDATE {table} SET {column} = ?", (cell,))


@given(st.sampled_from((FILE, CALLS)), st.tuples(st.integers(0, 10**6), SPOILT, CELL) | CUTS)
def test_a_spoilt_run_is_read_or_refused(run: tuple[Path, Settings], tmp_path: Path, file: str, how: Any) -> None:
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    folder, settings = Path(shutil.copytree(run[0], tmp_path / "copy")), run[1]
    if isinstance(how, tuple):
        spoil_cell(folder / file, *how)
    else:
        (folder / file).write_bytes(cut((folder / file).read_bytes(), how))
    with typed_only(), Store.open(folder) as store:
        len(store), store.find_example("000001"), list(store.examples())
        for key in store.counts():
            list(store.rows(*key)), list(store.pairs(*key)), store.row("000001", *key)
    with typed_only():
        report.write_report([folder])
    with typed_only(), replay_engine(folder, settings, load_prompt_set("gqa")) as vqa:
        for method in get_args(Method):
            for example in Numbered(tmp_path, 1):
                with typed_only():
                    vqa.ask([image.load() for image in example.images], example.question, method=method)
