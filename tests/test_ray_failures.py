"""Actors of a real Ray that die, hang or cannot begin: no row is lost, and what ends a run is one clear error."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from eval_kit import Numbered, asked, fake_engine, timeless
from ray_kit import make, ray_evaluate, slowly

from codevqa import CodeVQA
from codevqa.core.errors import InputError, ModelError, ServerError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval import ray as on_ray
from codevqa.eval.ray import ActorPool
from codevqa.eval.run.session import Status
from codevqa.models.base import GenerationRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
    pytest.mark.usefixtures("no_actor_left"),
]


# -- actors and models that fail -------------------------------------------------------------------------------------


def test_actors_that_are_killed_lose_nothing(ray: Any, tmp_path: Path) -> None:
    data, made, killed = Numbered(tmp_path, 120), tmp_path / "made", set[int]()
    made.mkdir()
    with evaluate(make(fake_engine, read=slowly), data, tmp_path / "local", methods=["pnpvqa"]) as store:
        local = timeless(store)

    def progress(status: Status) -> None:
        if status.examples in (20, 60):
            process = next(int(one.name) for one in sorted(made.iterdir()) if int(one.name) not in killed)
            killed.add(process)
            os.kill(process, signal.SIGKILL)

    options: Any = {"methods": ["pnpvqa"], "progress": progress}
    with ray_evaluate(make(marked, folder=made), data, tmp_path / "run", **options) as store:
        assert timeless(store) == local
        rows = asked(store)
    assert len(killed) == 2 and len(list(made.iterdir())) > 2
    assert len(rows) == len(set(rows)) == 120


def marked(folder: Path) -> CodeVQA:
    """An engine whose process is known."""
    (folder / str(os.getpid())).touch()
    return fake_engine(read=slowly)


def test_an_actor_that_hangs_is_replaced_and_loses_nothing(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "HANGING", 4.0)
    factory = make(stopping, folder=tmp_path)
    began = time.monotonic()
    with ray_evaluate(factory, Numbered(tmp_path, 40), tmp_path / "run", methods=["pnpvqa"], actors=1) as store:
        rows = list(store.rows("pnpvqa"))
    assert time.monotonic() - began < 120
    assert [row.prediction for row in rows] == ["yes"] * 40 and (tmp_path / "stopped").exists()


def stopping(folder: Path) -> CodeVQA:
    def read(request: GenerationRequest) -> str:
        if "Is thing 17 red?" in str(request.prompt) and not (folder / "stopped").exists():
            (folder / "stopped").touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return "yes"

    return fake_engine(read=read)


def test_a_question_that_kills_its_actor_is_a_row(ray: Any, tmp_path: Path) -> None:
    with ray_evaluate(make(fake_engine, read=deadly), Numbered(tmp_path, 60), tmp_path / "run") as store:
        for method in ("codevqa", "pnpvqa"):
            wrong = {row.id: row for row in store.rows(method) if row.error}
            assert list(wrong) == ["000017"] and len(list(store.rows(method))) == 60
        row = wrong["000017"]
    assert (row.error, row.prediction) == ("ModelError", "")
    assert row.message.startswith("4 processes died that were asked this.") and "\n" not in row.message


def deadly(request: GenerationRequest) -> str:
    if "Is thing 17 red?" in str(request.prompt):
        os.kill(os.getpid(), signal.SIGKILL)
    return "yes"


def test_actors_that_die_one_after_another_end_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"died one after another.* Stopped with 0 rows kept; --resume goes on"):
        ray_evaluate(make(fake_engine, read=die), Numbered(tmp_path, 60), tmp_path / "run")


def die(request: GenerationRequest) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def test_a_server_that_goes_down_ends_the_run_and_resume_goes_on(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 60), tmp_path / "run"
    with pytest.raises(ServerError, match=r"is down\. Start it\. Stopped with \d+ rows kept; --r"):
        ray_evaluate(make(fake_engine, read=down), data, out)
    with Store.open(out) as store:
        before = asked(store)
        assert before and not any(row.error for row in store.rows("pnpvqa"))
    with ray_evaluate(fake_engine, data, out, resume=True) as store:
        after = asked(store)
    assert len(after) == len(set(after)) == 120 and set(before) < set(after)


def down(request: GenerationRequest) -> str:
    if "Is thing 31 red?" in str(request.prompt):
        raise ServerError("The server at 127.0.0.1 is down.", hint="Start it.")
    return "yes"


def test_an_engine_that_hangs_does_not_outlive_the_run(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "CLOSING", 1.0)
    data = Numbered(tmp_path, 1)
    with ActorPool(make(fake_engine, read=hang), actors=1) as pool, pytest.raises(TimeoutError):
        pool.seeds = (0,)
        asyncio.run(asyncio.wait_for(pool(next(iter(data)), [("pnpvqa", 0)]), 1))


def hang(request: GenerationRequest) -> str:
    time.sleep(45)
    return "yes"


def test_a_model_that_fails_for_every_question_ends_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Out of memory\. Stopped with 0 rows kept"):
        ray_evaluate(make(fake_engine, read=full), Numbered(tmp_path, 500), tmp_path / "run")


def full(request: GenerationRequest) -> str:
    raise ModelError("Out of memory.")


def test_an_error_of_the_code_comes_through(ray: Any, tmp_path: Path) -> None:
    def broken() -> CodeVQA:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        ray_evaluate(broken, Numbered(tmp_path, 5), tmp_path / "run")


# -- what cannot begin or go on --------------------------------------------------------------------------------------


def test_an_engine_that_cannot_be_made_is_one_line(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^No weights here\. Fetch them\.$"):
        ray_evaluate(without_weights, Numbered(tmp_path, 5), tmp_path / "run")
    with pytest.raises(SetupError, match=r"^3 of Ray's processes died while they made an engine\. "):
        ray_evaluate(make(die, request=None), Numbered(tmp_path, 5), tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_machines_that_differ_are_refused(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(
        SetupError, match=r"differ: settings\.query\.captions was \d, now \d\. Install the same packages"
    ):
        ray_evaluate(make(differing, marker=tmp_path / "made"), Numbered(tmp_path, 5), tmp_path / "run")


def differing(marker: Path) -> CodeVQA:
    try:
        marker.mkdir()
    except FileExistsError:
        return fake_engine(captions=1)
    return fake_engine()


def without_weights() -> CodeVQA:
    raise SetupError("No weights here.", hint="Fetch them.")


def test_what_is_refused_is_refused_before_ray_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    monkeypatch.setattr(on_ray, "ActorPool", None)
    with pytest.raises(InputError, match="is there already"):
        on_ray.evaluate(fake_engine, data, out)
    with pytest.raises(InputError, match="nothing to ask"):
        on_ray.evaluate(fake_engine, data, out, methods=[], resume=True)


def test_other_settings_are_refused(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    with pytest.raises(InputError, match="captions was 2, now 1"):
        ray_evaluate(make(fake_engine, captions=1), data, out, resume=True)
