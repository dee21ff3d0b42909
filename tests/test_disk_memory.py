"""What a place on disk remembers: recorded calls, servers' answers, features of pictures; also for other processes."""

import json
import multiprocessing
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from openai_kit import ASK, KEY, FakeServer, Serve, completion, failure, refusal, streamed
from safetensors.torch import load_file
from test_record import ABOUT

from codevqa.collections import disk_memory
from codevqa.collections.disk_memory import (
    CALLS,
    FEATURES,
    FILE,
    DiskMemory,
    StoredCall,
    StoredCell,
    memory_at,
    user_place,
)
from codevqa.core.errors import InputError
from codevqa.models import feature_store
from codevqa.models.fakes import ScriptedLM
from codevqa.models.feature_store import FeatureStore
from codevqa.models.openai_lm import OpenAILM
from codevqa.models.protocols import GenerationRequest
from codevqa.models.recorded import RecordedModel
from codevqa.presets.assembly import build
from codevqa.presets.configuration import Layer, configure

FIRST = """
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, kind TEXT NOT NULL, state INTEGER NOT NULL, text TEXT NOT NULL,
    data BLOB
);
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = 0x43565143;
PRAGMA user_version = 1;
"""
"""A file as version 1 made it."""


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    end_process()


def end_process() -> None:
    """Closes what this process holds of the memory on disk, as its end would."""
    for memory in list(disk_memory._memories.values()):
        memory.close()
    disk_memory._memories.clear()


# -- files of earlier versions -----------------------------------------------------------------------------------------


def look(file: Path, query: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


@pytest.fixture
def first_version(tmp_path: Path) -> Path:
    """A run's calls as version 1 kept them: one that succeeded, and one that failed, which is state 2."""
    source, file = DiskMemory(tmp_path / "new" / CALLS), tmp_path / "run" / CALLS
    source.models = {"writer": ABOUT}
    model = RecordedModel(source, ABOUT, ScriptedLM(lambda request: f"about {request.prompt}"))
    model.generate([GenerationRequest(name, 5) for name in ("one picture", "another")])
    source.close()
    file.parent.mkdir()
    db = sqlite3.connect(file)
    db.executescript(FIRST)
    db.execute("ATTACH ? AS new", (str(tmp_path / "new" / CALLS),))
    db.execute("INSERT INTO calls SELECT * FROM new.calls")
    db.execute("INSERT INTO about SELECT * FROM new.about")
    db.execute("UPDATE calls SET state = 2 WHERE id = (SELECT max(id) FROM calls)")
    db.commit()
    db.close()
    return file


def test_a_file_of_version_1_replays_and_stays_as_it_is(first_version: Path) -> None:
    before = first_version.read_bytes()
    store = DiskMemory(first_version, read_only=True)
    assert store.models == {"writer": ABOUT}
    replay = RecordedModel(store, ABOUT)
    assert replay.generate([GenerationRequest("one picture", 5)])[0].text == "about one picture"
    store.close()
    assert first_version.read_bytes() == before


def test_a_file_of_version_1_is_upgraded_when_it_is_written(first_version: Path) -> None:
    store, asked = DiskMemory(first_version), ScriptedLM("anew")
    model = RecordedModel(store, ABOUT, asked)
    requests = [GenerationRequest(name, 5) for name in ("one picture", "another")]
    assert [result.text for result in model.generate(requests)] == ["about one picture", "anew"]
    assert [request.prompt for request in asked.requests] == ["another"], "what failed then is asked again"
    store.add_cells([(b"q", "picture", StoredCell("2", 0.5, ""))])
    assert store.cells(b"q") == {"picture": StoredCell("2", 0.5, "")} and store.models == {"writer": ABOUT}
    store.close()
    assert look(first_version, "PRAGMA user_version") == [(2,)]
    assert look(first_version, "SELECT count(*) FROM calls WHERE state < 2") == [(2,)]


def test_a_file_of_a_later_version_is_refused(first_version: Path) -> None:
    db = sqlite3.connect(first_version)
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = first_version.read_bytes()
    for read_only in (True, False):
        with pytest.raises(InputError, match=r"written by a later version of codevqa \(file version 99"):
            DiskMemory(first_version, read_only=read_only)
    assert look(first_version, "SELECT count(*) FROM calls") == [(2,)] and len(before) == first_version.stat().st_size


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="makes a pipe")
def test_nobody_waits_for_the_writer_of_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(InputError, match="is not a regular file"):
        DiskMemory(tmp_path / FILE)


def test_the_memory_of_a_later_version_stays_where_it_is() -> None:
    held = memory_at(user_place())
    held.add_cells([(b"q", "picture", StoredCell("2", 0.5, ""))])
    end_process()
    file = user_place() / FILE
    db = sqlite3.connect(file)
    db.execute("PRAGMA user_version = 99")
    db.close()
    assert memory_at(user_place()).cells(b"q") == {}
    end_process()
    assert look(file, "SELECT count(*) FROM cells") == [(1,)]


# -- answers of servers ------------------------------------------------------------------------------------------------


def client(server: FakeServer, model: str = "m", **options: Any) -> OpenAILM:
    """A client that remembers as an engine's does, in a process of its own."""
    end_process()
    lm = OpenAILM(model, **{"base_url": server.url, "api_key": KEY, **options})
    lm.memory = memory_at(user_place())
    return lm


def counting(serve: Serve) -> FakeServer:
    return serve(lambda path, body, n: completion(f"answer {n}"))


def test_what_a_server_answered_is_looked_up_by_another_client(serve: Serve) -> None:
    server = counting(serve)
    first = client(server).generate([ASK])
    assert client(server, api_key="sk-another").generate([ASK]) == first
    assert (first[0].text, first[0].prompt_tokens, first[0].completion_tokens) == ("answer 1", 7, 3)
    assert len(server.seen) == 1


def test_another_server_model_or_request_is_asked(serve: Serve) -> None:
    server, other = counting(serve), counting(serve)
    client(server).generate([ASK])
    client(other).generate([ASK])
    assert client(server, "another").generate([ASK])[0].text == "answer 2"
    changed = [GenerationRequest("Say", 6), GenerationRequest("Say!", 5), GenerationRequest("Say", 5, stop=(".",))]
    client(server, max_retries=0).generate(changed)
    client(server, form="chat").generate([ASK])
    assert (len(server.seen), len(other.seen)) == (6, 1)


@pytest.mark.parametrize("fresh", [False, True])
def test_an_engine_looks_up_answers_unless_it_is_fresh(fresh: bool, serve: Serve) -> None:
    server = counting(serve)
    values = {"language_model": "openai:m", "language_model.base_url": server.url, "fresh": fresh}
    texts = []
    for _ in range(2):
        end_process()
        _, models, _ = build(configure("mini", [Layer("here", values)]))
        texts.append(models.reader.generate([ASK])[0].text)
    assert texts == (["answer 1", "answer 2"] if fresh else ["answer 1"] * 2)
    kept = look(user_place() / FILE, "SELECT text FROM calls")
    assert len(kept) == 1 and texts[-1] in kept[0][0], "the last answer is kept, however it came"


@pytest.mark.parametrize("first", ["streamed", "whole"])
def test_streamed_and_whole_answers_share(first: str, serve: Serve) -> None:
    server = serve(lambda path, body, n: streamed("a red ", "ball") if "stream" in body else completion("a red ball"))
    told: list[str] = []
    requests = {"whole": ASK, "streamed": GenerationRequest("Say", 5, on_text=told.append)}
    results = [client(server).generate([requests[first]])[0], client(server).generate([requests.pop(first)])[0]]
    results += client(server).generate(list(requests.values()))
    assert [result.text for result in results] == ["a red ball"] * 3 and told[-1] == "a red ball"
    assert {(result.prompt_tokens, result.completion_tokens) for result in results} == {(7, 3)}
    assert len(server.seen) == 1


def test_blank_answers_and_refusals_are_not_kept(serve: Serve) -> None:
    server = serve(lambda path, body, n: [completion(" \n"), completion("now"), completion("never")][n - 1])
    request = GenerationRequest("Say", 5, stop=("\n",))
    assert [client(server).generate([request])[0].text.strip() for _ in range(3)] == ["", "now", "now"]
    server = serve(lambda path, body, n: failure(400, "too long") if n == 1 else completion("shorter"))
    assert "too long" in str(refusal(client(server)))
    assert client(server).generate([ASK])[0].text == "shorter"


def test_no_key_and_no_prompt_is_on_disk(serve: Serve) -> None:
    server = counting(serve)
    address = server.url.replace("http://", "http://somebody:verysecretword@") + "?code=anothersecret"
    lm = client(server, base_url=address)
    lm.generate([GenerationRequest("What is on the plate?", 5)])
    assert "authorization" in server.seen[0][2]

    def on_disk() -> bytes:
        return b"".join(path.read_bytes() for path in sorted(user_place().rglob("*")) if path.is_file())

    contents = [on_disk()]
    end_process()
    for content in (*contents, on_disk()):
        assert b"answer 1" in content
        for secret in (KEY, "verysecretword", "anothersecret", "somebody", "What is on the plate?"):
            assert secret.encode() not in content


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "null", "[]", "[1]", '{"a": 1}', '["{"]', '["{}"]', '["[]"]', '["{\\"choices\\": [3]}"]'],
)
def test_a_damaged_reply_is_asked_again(text: str, serve: Serve) -> None:
    server = counting(serve)
    client(server).generate([ASK])
    end_process()
    db = sqlite3.connect(user_place() / FILE)
    db.execute("UPDATE calls SET text = ?", (text,))
    db.commit()
    db.close()
    assert client(server).generate([ASK])[0].text == "answer 2"
    assert client(server).generate([ASK])[0].text == "answer 2", "and is kept in its place"


def test_a_reply_that_is_nested_without_end_is_asked_again(serve: Serve) -> None:
    test_a_damaged_reply_is_asked_again("[" * 100_000, serve)


@pytest.mark.parametrize("how", ["no database", "a page"])
def test_a_damaged_file_is_set_aside_and_begins_anew(how: str, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server, held = counting(serve), memory_at(user_place())
    file = held.path
    held.save_calls("reply", {str(number).encode(): StoredCall(json.dumps("x" * 500)) for number in range(99)})
    end_process()
    content = file.read_bytes()
    file.write_bytes(b"none of ours" if how == "no database" else content[:4096] + b"\xff" * (len(content) - 4096))
    assert client(server).generate([ASK])[0].text == "answer 1"
    assert "is damaged: it is set aside" in caplog.text and file.with_name(f"{FILE}.damaged").exists()
    asked = [client(server).generate([ASK])[0].text for _ in range(3)]
    assert asked[1:] == asked[:1] * 2, "it is kept again, at the latest by the next process"


# -- features of pictures ----------------------------------------------------------------------------------------------


def listed(memory: DiskMemory, *, count: int) -> bool:
    """Whether so many features come to be listed."""
    deadline = time.monotonic() + 10
    while len(memory.features("a")) < count and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(memory.features("a")) == count


def test_features_are_written_after_a_while_however_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_store, "FILE_SECONDS", 0.2)
    memory = memory_at(tmp_path / "index")
    store = FeatureStore(memory, "a")
    store.add({"x": torch.ones(3)})
    store.add({"y": torch.ones(3)})
    assert not memory.features("a"), "not each for itself"
    time.sleep(0.25)
    store.add({"z": torch.ones(3)})
    assert listed(memory, count=3)
    (file,) = (tmp_path / "index" / FEATURES / "a").glob("*.safetensors")
    assert sorted(load_file(file)) == ["x", "y", "z"]
    assert sorted(FeatureStore(memory, "a").read("xyz")) == ["x", "y", "z"]


@pytest.mark.parametrize("small", [False, True])
def test_features_of_another_shape_are_dropped_and_computed_again(small: bool, tmp_path: Path) -> None:
    memory = memory_at(tmp_path / "index")
    before = FeatureStore(memory, "a")
    before.add({"x": torch.zeros(3), "y": torch.zeros(3)})
    before.save()
    store = FeatureStore(memory, "a", small=small, shape=(4,))
    assert not store.read("xy") and "x" not in store and not memory.features("a")
    assert not list((tmp_path / "index" / FEATURES / "a").glob("*.safetensors"))
    store.add({"x": torch.ones(4)})
    store.save()
    (features,) = FeatureStore(memory, "a", small=small, shape=(4,)).read("xy").values()
    assert torch.equal(features, torch.ones(4))


def test_features_that_changed_on_disk_are_dropped(tmp_path: Path) -> None:
    memory = memory_at(tmp_path / "index")
    store = FeatureStore(memory, "a")
    store.add({"x": torch.zeros(3)})
    store.save()
    (file,) = (tmp_path / "index" / FEATURES / "a").glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    assert not FeatureStore(memory, "a").read("x") and not file.exists()


def test_two_stores_keep_each_picture_once(tmp_path: Path) -> None:
    memory = memory_at(tmp_path / "index")
    stores = [FeatureStore(memory, "a") for _ in range(2)]
    for number, store in enumerate(stores):
        store.add({key: torch.full((3,), float(number)) for key in "xy"})
    for store in stores:
        store.save()
    files = list((tmp_path / "index" / FEATURES / "a").glob("*"))
    assert len(files) == 1 and sorted(load_file(files[0])) == ["x", "y"]
    assert memory.feature_bytes(["x", "y"]) == 24
    for store in (*stores, FeatureStore(memory, "a")):
        assert torch.equal(store.read("x")["x"], torch.zeros(3)), "what was kept first"
    FeatureStore(memory, "b").add({"x": torch.ones(3)})
    assert sorted(memory.features("a")) == ["x", "y"] and not memory.features("b")


def test_only_files_that_nobody_writes_any_more_are_removed(tmp_path: Path) -> None:
    memory = memory_at(tmp_path / "index")
    folder = tmp_path / "index" / FEATURES / "a"
    folder.mkdir(parents=True)
    young, old = folder / "young.part", folder / "old.part"
    for file in (young, old):
        file.write_bytes(b"half")
    os.utime(old, (0, time.time() - 2 * 3600))
    FeatureStore(memory, "a")
    assert young.exists() and not old.exists(), "another process may write the young file still"


# -- several processes -------------------------------------------------------------------------------------------------


def _add_much(file: Path, number: int, ready: Any) -> None:
    memory = DiskMemory(file)
    ready.wait(20)
    for count in range(60):
        memory.add_cells([(b"q", f"{number}-{count}", StoredCell(str(count), None, ""))])
        memory.save_calls("reply", {f"{number}-{count}".encode(): StoredCall(json.dumps(count))})
        memory.add_features("a", f"{number}-{count}", {f"{count}": 4}, lambda keys: None)
    memory.close()


def test_two_processes_write_one_memory(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(2)
    processes = [context.Process(target=_add_much, args=(tmp_path / FILE, number, ready)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    memory = DiskMemory(tmp_path / FILE, read_only=True)
    assert len(memory.cells(b"q")) == 120
    assert all(memory.get(f"{number}-59".encode()) == StoredCall("59") for number in range(2))
    assert sorted(memory.features("a"), key=int) == [str(count) for count in range(60)], "each once"
    memory.close()


def test_a_process_sees_what_another_keeps_while_both_have_it_open(tmp_path: Path) -> None:
    first, other = DiskMemory(tmp_path / FILE), DiskMemory(tmp_path / FILE)
    assert other.cells(b"q") == {}
    first.add_cells([(b"q", "picture", StoredCell("2", 0.5, ""))])
    assert other.cells(b"q") == {"picture": StoredCell("2", 0.5, "")}
    first.close()
    other.close()


def test_a_memory_that_is_deleted_meanwhile_begins_anew() -> None:
    memory_at(user_place()).add_cells([(b"q", "picture", StoredCell("2", 0.5, ""))])
    held = memory_at(user_place())
    assert memory_at(user_place()) is held, "there is one for each place"
    shutil.rmtree(user_place())
    memory_at(user_place()).add_cells([(b"r", "picture", StoredCell("3", 0.5, ""))])
    held.close()
    end_process()
    memory = memory_at(user_place())
    assert memory.cells(b"r") and not memory.cells(b"q")
