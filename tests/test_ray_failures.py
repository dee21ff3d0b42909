"""Actors of a real Ray that die, hang or cannot begin: no row is lost, and what ends a run is one clear error."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eval_kit import Numbered, asked, fake_engine, timeless
from ray_kit import make, ray_evaluate, run_of, slowly

from codevqa import CodeVQA
from codevqa.core.errors import ImageError, InputError, ModelError, ServerError, SetupError
from codevqa.eval import Store, evaluate
from codevqa.eval.ray import actor_pool, runner
from codevqa.eval.ray.actor_pool import ActorPool
from codevqa.eval.run.runner import stream
from codevqa.eval.run.session import Status
from codevqa.eval.task import Example
from codevqa.models.base import GenerationRequest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='needs the extra "ray"'),
    pytest.mark.usefixtures("no_actor_left"),
]


# -- actors and models that fail -------------------------------------------------------------------------------------


def test_an_actor_that_is_killed_loses_nothing(ray: Any, tmp_path: Path) -> None:
    data, factory = Numbered(tmp_path, 120), make(fake_engine, read=slowly)
    with evaluate(factory, data, tmp_path / "local", methods=["pnpvqa"]) as store:
        local = timeless(store)
    hit: list[Any] = []
    killed: list[Any] = []
    with ActorPool(factory, actors=2) as pool:

        def progress(status: Status) -> None:
            for slot, at in zip(pool._slots, (20, 60), strict=True):
                if status.examples >= at and slot not in hit and slot.ready and slot.load:
                    hit.append(slot)
                    killed.append(slot.actor)
                    ray.kill(slot.actor)

        with stream(tmp_path / "run", data, pool, run_of(pool, data), workers=8, progress=progress) as store:
            assert timeless(store) == local
            rows = asked(store)
        assert killed and not set(killed) & {slot.actor for slot in pool._slots}
    assert len(rows) == len(set(rows)) == 120


def test_an_actor_that_hangs_is_replaced_and_loses_nothing(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actor_pool, "HANGING", 4.0)
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
    monkeypatch.setattr(actor_pool, "CLOSING", 1.0)
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


def test_an_error_of_the_code_of_another_actor_comes_through(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="a bug"):
        ray_evaluate(make(once, marker=tmp_path / "made", bug=True), Numbered(tmp_path, 2000), tmp_path / "run")


# -- what cannot begin or go on --------------------------------------------------------------------------------------


def test_an_engine_that_cannot_be_made_is_one_line(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^No weights here\. Fetch them\.$"):
        ray_evaluate(without_weights, Numbered(tmp_path, 5), tmp_path / "run")
    with pytest.raises(SetupError, match=r"^3 of Ray's processes died while they made an engine\. "):
        ray_evaluate(make(die, request=None), Numbered(tmp_path, 5), tmp_path / "run")  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_another_version_is_refused(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_pool, "__version__", "0.0.1")
    with pytest.raises(
        SetupError, match=r" has codevqa .*, and 0\.0\.1 asks\. Install the same packages on every machine"
    ):
        ray_evaluate(fake_engine, Numbered(tmp_path, 5), tmp_path / "run")


def without_weights() -> CodeVQA:
    raise SetupError("No weights here.", hint="Fetch them.")


def test_another_actor_s_engine_that_cannot_be_made_ends_the_run(ray: Any, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^No weights here\. Fetch them\. Stopped with "):
        ray_evaluate(make(once, marker=tmp_path / "made"), Numbered(tmp_path, 2000), tmp_path / "run")


def once(marker: Path, bug: bool = False) -> CodeVQA:
    if marker.exists():
        if bug:
            raise KeyError("a bug")
        return without_weights()
    marker.touch()
    return fake_engine()


def test_what_is_refused_is_refused_before_ray_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    monkeypatch.setattr(runner, "ActorPool", None)
    with pytest.raises(InputError, match="is there already"):
        runner.evaluate(fake_engine, data, out)
    with pytest.raises(InputError, match="nothing to ask"):
        runner.evaluate(fake_engine, data, out, methods=[], resume=True)


def test_other_settings_are_refused(ray: Any, tmp_path: Path) -> None:
    data, out = Numbered(tmp_path, 3), tmp_path / "run"
    evaluate(fake_engine, data, out).close()
    with pytest.raises(InputError, match="captions was 2, now 1"):
        ray_evaluate(make(fake_engine, captions=1), data, out, resume=True)


@dataclasses.dataclass(frozen=True)
class OnlyHere:
    """A picture that other processes cannot read, as if they ran on another machine."""

    path: Path
    process: int
    name: str = "here.png"

    def load(self) -> Path:
        if os.getpid() != self.process:
            raise ImageError(f"{self.path} is not there.")
        return self.path


def test_a_picture_that_only_this_machine_can_read_ends_the_run(ray: Any, tmp_path: Path) -> None:
    class Local(Numbered):
        def __iter__(self) -> Iterator[Example]:
            for example in super().__iter__():
                yield dataclasses.replace(example, images=(OnlyHere(self.picture, os.getpid()),))

    with pytest.raises(SetupError, match=r"cannot read what this one can: .*picture\.png is not there"):
        ray_evaluate(fake_engine, Local(tmp_path, 5), tmp_path / "run")
