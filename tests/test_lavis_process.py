"""LAVIS's process dies, hangs or babbles: one call fails, and the next has a new process. LAVIS itself: our numbers.

A small script stands in for LAVIS: real processes, real pipes.
"""

import importlib
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_kit import GARDEN, SHELF
from PIL import Image

from codevqa import CodeVQA
from codevqa.core.errors import ModelError, ModelNotFoundError, SetupError
from codevqa.core.images import load_picture
from codevqa.models.lavis import messages
from codevqa.models.lavis.parts import LavisCaptioner, LavisMatcher
from codevqa.models.lavis.process import VARIABLE, LavisProcess, python_of
from codevqa.models.protocols import MatchRequest, SimilarityRequest
from codevqa.presets.assembly import load
from codevqa.presets.checkpoints import missing

SCRIPT = """
import os, sys, time
import numpy as np
print("a library greets")

def answer(head, arrays):
    do = head["do"]
    os.write(1, b"noise")
    if do == "load":
        if head["name"] == "unknown":
            raise FileNotFoundError("no weights of that\\nname")
        return {"grid": 2, "pid": os.getpid()}, []
    if do == "double":
        return {"said": head["text"]}, [2 * array for array in arrays]
    if do == "similarity":
        return {"pictures": len(arrays)}, [np.array([arrays[at].sum() + len(text) for at, text in head["pairs"]], "f4")]
    if do == "match":
        maps = np.arange(16, dtype="f4").reshape(4, 2, 2)
        focus = [6] if head["pairs"][0][2] == "dog" else []
        return {"tokens": [[1, 5, 6, 2]], "focus": [focus]}, [maps, np.array([1, 3], "f4")]
    if do == "die":
        os.kill(os.getpid(), 9)
    if do == "leave":
        sys.exit("no memory left")
    if do == "hang":
        time.sleep(600)
    if do == "junk":
        for descriptor in range(3, 9):
            try:
                os.write(descriptor, b"Downloading: 100 %" * 9)
            except OSError:
                pass
    raise ValueError("a tensor\\nhas the wrong shape")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "stand_in.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def process(script: Path) -> LavisProcess:
    return LavisProcess(Path(sys.executable), script, {"name": "known"}, limit=60)


def gone(pid: int | None, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


def test_arrays_come_back_past_what_libraries_print(process: LavisProcess) -> None:
    sent = [np.arange(6, dtype=kind).reshape(1, 3, 2) for kind in ("u1", "f4", "i8")] + [np.zeros((0, 3), np.float32)]
    reply, arrays = process.ask("double", {"text": 'Größe "\n'}, sent)
    assert reply == {"said": 'Größe "\n'}
    assert [array.dtype for array in arrays] == [array.dtype for array in sent]
    assert all(
        (array == 2 * original).all() and array.shape == original.shape
        for array, original in zip(arrays, sent, strict=True)
    )


@pytest.mark.parametrize(
    ("how", "limit", "says"),
    [
        ("die", 60, "was ended by SIGKILL"),
        ("leave", 60, "ended with status 1: no memory left"),
        ("hang", 0.5, "gave no answer within 0.5 s"),
        ("junk", 60, "wrote something else than an answer"),
    ],
)
def test_a_lost_process_fails_one_call(script: Path, how: str, limit: float, says: str) -> None:
    process = LavisProcess(Path(sys.executable), script, {"name": "known"}, limit=limit)
    first = process.pid
    with pytest.raises(ModelError, match=says):
        process.ask(how, {}, [])
    assert gone(first)
    assert process.ask("double", {"text": "next"}, [])[0] == {"said": "next"}
    assert process.pid not in (first, None)


def test_what_fails_in_it_costs_no_process(process: LavisProcess) -> None:
    first = process.pid
    with pytest.raises(ModelError, match=r"^LAVIS failed: ValueError: a tensor has the wrong shape\.$"):
        process.ask("fail", {}, [])
    assert process.pid == first


def test_a_model_that_is_not_to_be_had_is_no_start(script: Path) -> None:
    with pytest.raises(SetupError, match=r"LAVIS cannot load unknown: .*FileNotFoundError: no weights of that name"):
        LavisProcess(Path(sys.executable), script, {"name": "unknown"}, limit=60)
    with pytest.raises(SetupError, match="does not start"):
        LavisProcess(script.parent / "no-python", script, {"name": "known"}, limit=60)
    broken = script.with_name("broken.py")
    broken.write_text("import no_such_lavis")
    with pytest.raises(SetupError, match="ended with status 1: ModuleNotFoundError"):
        LavisProcess(Path(sys.executable), broken, {"name": "known"}, limit=60)


def test_it_ends_with_the_engine_it_was_loaded_for(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[LavisProcess] = []

    def matcher(name: str, **_: object) -> LavisMatcher:
        processes.append(LavisProcess(Path(sys.executable), script, {"name": name}, limit=60))
        return LavisMatcher(processes[0], name, average="words")

    monkeypatch.setattr(LavisMatcher, "from_pretrained", matcher)
    with CodeVQA.from_preset("mini", matcher=f"lavis:{script}"):
        pid = processes[0].pid
        assert Path(f"/proc/{pid}").exists()
    assert gone(pid)
    assert processes[0].ask("double", {"text": "next"}, [])[0] == {"said": "next"}, "it starts again where it is shared"


def test_it_ends_with_a_parent_that_was_killed_even_while_it_hangs(script: Path) -> None:
    parent = f"""
import pathlib, sys, threading, time
from codevqa.models.lavis.process import VARIABLE, LavisProcess
process = LavisProcess(pathlib.Path(sys.executable), pathlib.Path({str(script)!r}), {{"name": "known"}}, limit=600)
threading.Thread(target=process.ask, args=("hang", {{}}, []), daemon=True).start()
time.sleep(0.2)
print(process.pid, flush=True)
time.sleep(600)
"""
    root = Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, "-c", parent], cwd=root, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        running.kill()
    assert gone(pid)


def test_pictures_travel_once_and_scores_keep_their_order(process: LavisProcess) -> None:
    matcher = LavisMatcher(process, "stand-in", average="words")
    dark, light = (load_picture(Image.new("RGB", (30, 20), (value,) * 3)) for value in (0, 1))
    pictures = [(dark, light)[number % 2] for number in range(11)]
    scores = matcher.similarity([SimilarityRequest(picture, "a" * at) for at, picture in enumerate(pictures)])
    assert scores == [at + 30 * 20 * 3 * (at % 2) for at in range(11)]


def test_relevance_averages_the_tokens_in_focus(process: LavisProcess) -> None:
    request = MatchRequest(load_picture(Image.new("RGB", (2, 2))), "red dog")
    (match,) = LavisMatcher(process, "stand-in", average="words").match([request])
    assert (match.relevance == [[6, 7], [8, 9]]).all()  # tokens 1 and 2
    assert match.logit == 2
    focused = MatchRequest(request.picture, request.text, "dog")
    (match,) = LavisMatcher(process, "stand-in", average="words").match([focused])
    assert (match.relevance == [[8, 9], [10, 11]]).all()


@pytest.mark.parametrize("part", ["matcher", "captioner"])
def test_without_lavis_a_part_says_how_to_get_it(part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    kind = {"matcher": "large", "captioner": "large_coco"}[part]
    with pytest.raises(SetupError, match="Install LAVIS, or set CODEVQA_LAVIS"):
        load(part, f"lavis:{kind}")
    with pytest.raises(ModelNotFoundError, match=f"{kind}, or a checkpoint of LAVIS, FILE.pth"):
        load(part, "lavis:gigantic")
    assert missing(f"lavis:{kind}") == "needs LAVIS: docs/reports/lavis.md"


def test_objects_in_a_message_are_not_unpickled() -> None:
    packed, stream = io.BytesIO(), io.BytesIO()
    np.savez(packed, np.frombuffer(b"{}", np.uint8), np.array([print], dtype=object))
    stream.write(packed.tell().to_bytes(8, "little") + packed.getvalue())
    stream.seek(0)
    with pytest.raises(messages.MessageError):
        messages.read_message(stream)


PICTURES = [GARDEN, *map(Path, SHELF[:2])]
TEXTS = ["a red dog to the left of the bench", "two cats", "is there any yellow ball on the large car"]
PYTHON = python_of()

here = pytest.mark.skipif(not PYTHON.is_file(), reason=f"LAVIS is not at {PYTHON}")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    words = {word for text in ["a picture of", *TEXTS] for word in text.split()}
    (folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)]))
    (folder / "meta.json").write_text(json.dumps({"texts": TEXTS, "block": 7}))
    for index, picture in enumerate(PICTURES):
        shutil.copy(picture, folder / f"image{index}.png")
    return folder


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("work")
    yield folder
    shutil.rmtree(folder)  # gigabytes


@pytest.fixture(scope="module")
def parity(inputs: Path, work: Path) -> Any:
    script: Any = importlib.import_module("benchmarks.parity")
    return script.live(inputs, work, "base")


@here
@pytest.mark.slow
def test_networks_of_full_size_give_lavis_s_numbers(parity: Any) -> None:
    for figures in (parity.itm, parity.itc, parity.gradcam, parity.relevance, parity.logits):
        assert max(figures) < 1e-4
    assert parity.captions == [True] * 3


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@here
@pytest.mark.slow
def test_weights_of_another_part_or_with_code_are_refused(
    parity: Any, inputs: Path, work: Path, tmp_path: Path
) -> None:
    words = str(inputs / "vocab.txt")
    with pytest.raises(SetupError, match=r"lacks \d+ weights of LAVIS's blip_caption"):
        LavisCaptioner.from_pretrained(str(work / "matcher.pth"), vocabulary=words)
    torch.save({"a": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="it holds no BLIP of LAVIS"):
        LavisMatcher.from_pretrained(str(tmp_path / "other.pth"), vocabulary=words)
    trap, sprung = tmp_path / "trap.pth", tmp_path / "sprung"
    for zipped in (True, False):
        torch.save({"model": Trap(sprung)}, trap, _use_new_zipfile_serialization=zipped)
        reason = (
            "it is damaged, or holds more than weights" if zipped else "no checkpoint as torch saves them since 1.6"
        )
        with pytest.raises(SetupError, match=reason):
            LavisMatcher.from_pretrained(str(trap), vocabulary=words)
        assert not sprung.exists()
