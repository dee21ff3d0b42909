"""The store: what goes in comes out, and what is committed survives everything but the loss of the disk."""

import dataclasses
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from eval_kit import Numbered

from codevqa.collections.disk_memory import DiskMemory
from codevqa.core.errors import InputError, SetupError
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Store
from codevqa.eval.task import DatasetPicture, Example, Row

WHAT: dict[str, Any] = {"models": {"writer": "w"}, "settings": {"seed": 0, "workers": 16, "query": {"captions": 7}}}
WHAT |= {"packages": {"torch": "2"}, "parts": {"reader": {"computes": "float32 on cpu", "weights": {"a.bin": "11"}}}}
ASKED: dict[str, Any] = {"seeds": (0, 1), "limit": 10, "data_hash": "abc", "version": "1"}
INFO = RunInfo("gqa", "val", ("codevqa", "pnpvqa"), **WHAT, **ASKED)


def row(id: str, method: str = "codevqa", repeat: int = 0, prediction: str = "yes") -> Row:
    return Row(id, method, repeat, prediction, program="answer = 1", trace={"calls": [{"value": None}]})  # type: ignore[arg-type]


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    images = (DatasetPicture(tmp_path / "a.png"), DatasetPicture(tmp_path / "b.zip", "deep/b.png", (1, 2, 30, 40)))
    groups, record = {"structural": "query"}, {"types": {"detailed": "exist"}, "list": [1, 2.5, None, True]}
    example = Example("02763807", "Wie groß ist der “Hund”?", images, "set", ("yes", "no"), groups, "c", record)
    trace = {"calls": [{"value": [1, 2.5]}], "printed": "x"}
    error = ("ProgramSyntaxError", "line 1: …", "answer = 'é'")
    full = Row("02763807", "pnpvqa", 1, "ja\x00\nnein", True, *error, trace, seconds=1.25, tokens=77)
    with Store.create(tmp_path / "run", INFO) as store:
        store.add(example, [full])
    with Store.open(tmp_path / "run") as store:
        assert store.info == INFO
        assert list(store.rows("pnpvqa", 1)) == [full] == [store.row("02763807", "pnpvqa", 1)]
        assert store.row("02763807", "codevqa") is None
        (back,) = store.examples()
        assert back == example


def test_text_that_utf_8_cannot_hold_is_kept_as_far_as_it_can_be(tmp_path: Path) -> None:
    (example,) = Numbered(tmp_path, 1)
    broken = dataclasses.replace(row(example.id, prediction="a\ud83db"), trace={"printed": "\udc00"})
    with Store.create(tmp_path / "run", INFO) as store:
        store.add(example, [broken])
        (back,) = store.rows("codevqa")
    assert (back.prediction, back.trace) == ("a?b", {"printed": "?"})


def test_a_place_holds_one_question(tmp_path: Path) -> None:
    first, second = Numbered(tmp_path, 2)
    with Store.create(tmp_path / "run", INFO) as store:
        store.add(first, [row(first.id)], place=0)
        with pytest.raises(InputError, match=f"Place 0 of the run holds another question than {second.id}"):
            store.add(second, [row(second.id)], place=0)
        assert [example.id for example in store.examples()] == [first.id]
        assert store.row(second.id, "codevqa") is None


def test_readers_see_what_is_committed_while_a_writer_goes_on(tmp_path: Path) -> None:
    examples = list(Numbered(tmp_path, 64))
    with Store.create(tmp_path / "run", INFO) as store:
        for example in examples:
            store.add(example, [row(example.id)])
        with Store.open(tmp_path / "run") as reader:
            assert reader.counts() == {("codevqa", 0): 64}
            with pytest.raises(SetupError, match="readonly"):
                reader.add(examples[0], [row("1")])
        with pytest.raises(InputError, match="Another program writes"):
            Store.open(tmp_path / "run", writable=True)
    Store.open(tmp_path / "run", writable=True).close()


def test_what_is_no_run_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no run: there is no run\.sqlite"):
        Store.open(tmp_path)
    Store.create(tmp_path, INFO).close()
    db = sqlite3.connect(tmp_path / "run.sqlite")
    db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(InputError, match=r"later version of codevqa.*version 2.*Update"):
        Store.open(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "run.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(InputError, match="no run"):
        Store.open(other)
    with pytest.raises(InputError, match="is there already"):
        Store.create(other, INFO)
    (other / "run.sqlite").unlink()
    with closing(sqlite3.connect(other / "run.sqlite")) as db:
        db.execute("CREATE TABLE rows (id)")
    with pytest.raises(InputError, match="of another kind"):
        Store.open(other)


def test_a_copy_without_its_log_says_what_to_copy_and_stays_as_it_is(tmp_path: Path) -> None:
    examples = list(Numbered(tmp_path, 3))
    with Store.create(tmp_path / "run", INFO) as store:
        store.add(examples[0], [row(examples[0].id)])
        names = sorted(file.name for file in (tmp_path / "run").iterdir() if file.name != "run.lock")
        assert names == ["run.sqlite", "run.sqlite-shm", "run.sqlite-wal"]
        for folder, kept in (("whole", names[:1] + names[2:]), ("half", names[:1])):
            (tmp_path / folder).mkdir()
            for name in kept:
                shutil.copy(tmp_path / "run" / name, tmp_path / folder)
    with Store.open(tmp_path / "whole") as whole, Store.open(tmp_path / "run") as closed:
        assert len(whole) == len(closed) == 1
    before = (tmp_path / "half" / "run.sqlite").read_bytes()
    for writable in (False, True):
        with pytest.raises(
            InputError, match=r"-wal is not here\. If it was copied, copy run\.sqlite-wal and run\.sqlite-shm"
        ):
            Store.open(tmp_path / "half", writable=writable)
        assert Store.exists(tmp_path / "half")
    assert (tmp_path / "half" / "run.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    "statement", ["PRAGMA journal_mode = WAL", "CREATE TABLE theirs (id)", "PRAGMA user_version = 1"]
)
def test_a_file_that_is_no_run_is_not_written(statement: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db:
        db.execute(statement)
    before = (tmp_path / "run.sqlite").read_bytes()
    writes: tuple[Callable[[], object], ...] = (
        lambda: Store.open(tmp_path, writable=True),
        lambda: Store.create(tmp_path, INFO),
    )
    for write in writes:
        with pytest.raises(InputError) as caught:
            write()
        assert "https://" not in str(caught.value) and "\n" not in str(caught.value)
    for memory in (lambda: DiskMemory(tmp_path / "run.sqlite"), lambda: Store(tmp_path, write=True)):
        with pytest.raises(InputError, match=r"it holds nothing\. If it was copied, copy|of another kind"):
            memory()
    assert (tmp_path / "run.sqlite").read_bytes() == before


KILLED = """
import os, sqlite3, sys
from test_eval_store import INFO, Store

def killer(left):
    def count(statement):
        nonlocal left
        left -= 1
        if not left:
            os._exit(9)
    return count

connect = sqlite3.connect
for number in range(1, 99):
    child = os.fork()
    if not child:
        def connect_counted(*words, **options):
            db = connect(*words, **options)
            db.set_trace_callback(killer(number))
            return db
        sqlite3.connect = connect_counted
        Store.create(f"{sys.argv[1]}/{number}", INFO)
        os._exit(0)
    if not os.waitpid(child, 0)[1]:
        break
print(number)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_run_that_is_killed_while_it_is_made_begins_anew(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.stdout.strip().isdecimal() and int(done.stdout) > 10, done
    for number in range(1, int(done.stdout)):  # killed before its first statement, its second, ...
        folder = tmp_path / str(number)
        with Store.open(folder, writable=True) if Store.exists(folder) else Store.create(folder, INFO) as store:
            assert store.info == INFO and len(store) == 0


def test_a_run_that_never_began_is_one_clear_line_and_can_begin(tmp_path: Path) -> None:
    Store.create(tmp_path, INFO).close()
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as db, db:
        db.execute("DELETE FROM info")
    with pytest.raises(InputError, match="or it was never begun"):
        Store.open(tmp_path)
    with Store.create(tmp_path, INFO) as store:
        assert store.info == INFO


def test_a_full_disk_is_one_clear_error_and_loses_nothing(tmp_path: Path) -> None:
    kept = 0
    with Store.create(tmp_path / "run", INFO) as store:
        store._db.execute("PRAGMA max_page_count = 40")  # SQLite fails beyond it as on a full disk
        with pytest.raises(SetupError, match=r"Cannot write .*full.* What was added before is safe"):
            for kept, example in enumerate(Numbered(tmp_path, 1_000)):  # noqa: B007 - the last is told
                store.add(example, [row(example.id)])
    with Store.open(tmp_path / "run", writable=True) as store:
        assert [question.id for question in store.examples()] == [f"{n:06}" for n in range(kept)] and kept > 5
        assert store.counts() == {("codevqa", 0): kept}
        store.add(Example("new", "?", (), "image"), [row("new")])  # there is room again


def test_a_run_may_grow_and_its_pace_may_change_but_not_what_computes() -> None:
    settings = {"seed": 0, "workers": 1, "query": {"captions": 7}}
    more: Any = {"limit": None, "seeds": (0, 1, 2), "methods": ("pnpvqa",), "machine": "another"}
    asked = dataclasses.replace(INFO, settings=settings, **more)
    assert INFO.differences(asked) == []
    for change, words in (
        ({"version": "9"}, "codevqa was '1', now '9'"),
        ({"packages": {"torch": "3"}}, "torch was '2', now '3'"),
        ({"parts": {"reader": {"computes": "bfloat16 on cpu"}}}, "reader.computes was 'float32 on cpu', now 'bf"),
        ({"parts": {"reader": {"weights": {"a.bin": "12"}}}}, "reader.weights a.bin was '11', now '12'"),
    ):
        (difference,) = INFO.differences(dataclasses.replace(INFO, **change))
        assert words in difference
    unknown = dataclasses.replace(INFO, version="", packages={}, parts={}, settings={**INFO.settings, "gone": 1})
    assert unknown.differences(INFO) == INFO.differences(unknown) == []
    assert INFO.grown(dataclasses.replace(INFO, limit=3)).limit == 10
    assert RunInfo.from_json(INFO.to_json()) == INFO


@pytest.mark.parametrize(
    "change",
    [
        'UPDATE rows SET trace = \'{"cost": {"prompt_tokens": "many"}}\'',
        f"UPDATE rows SET trace = '{'[' * 100_000}'",
        "UPDATE rows SET prediction = x'ff'",
        "DROP TABLE examples",
    ],
)
def test_what_somebody_else_wrote_into_a_run_is_one_clear_line(change: str, tmp_path: Path) -> None:
    with Store.create(tmp_path / "run", INFO) as store:
        store.add(Example("a", "Is it?", (DatasetPicture(tmp_path / "a.png"),), "image", ("yes",)), [row("a")])
    with sqlite3.connect(tmp_path / "run" / "run.sqlite") as db:
        db.execute(change)
    db.close()
    with Store.open(tmp_path / "run") as store, pytest.raises(InputError, match="is damaged") as caught:
        list(store.pairs("codevqa"))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("CREATE TRIGGER sly AFTER INSERT ON rows BEGIN UPDATE rows SET prediction = 'yes'; END", "trigger 'sly'"),
        ("ALTER TABLE rows RENAME TO kept; CREATE VIEW rows AS SELECT * FROM kept", "view 'rows'"),
        ("CREATE VIRTUAL TABLE sly USING fts5(a)", "virtual table 'sly'"),
    ],
)
def test_a_run_whose_file_computes_what_is_read_is_refused(change: str, what: str, tmp_path: Path) -> None:
    Store.create(tmp_path / "run", INFO).close()
    db = sqlite3.connect(tmp_path / "run" / "run.sqlite")
    db.executescript(change)
    db.close()
    for writable in (False, True):
        with pytest.raises(InputError, match=what):
            Store.open(tmp_path / "run", writable=writable)
