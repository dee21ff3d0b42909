"""LAVIS itself, in the environment of docs/reports/lavis.md: it gives our numbers, and refuses wrong weights."""

import importlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_kit import GARDEN, SHELF

from codevqa.core.errors import SetupError
from codevqa.models.lavis.parts import LavisCaptioner, LavisMatcher
from codevqa.models.lavis.process import python_of

PICTURES = [GARDEN, *map(Path, SHELF[:2])]
TEXTS = ["a red dog to the left of the bench", "two cats", "is there any yellow ball on the large car"]
PYTHON = python_of()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not PYTHON.is_file(), reason=f"LAVIS is not at {PYTHON}")]


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


def test_networks_of_full_size_give_lavis_s_numbers(parity: Any) -> None:
    for figures in (parity.itm, parity.itc, parity.gradcam, parity.relevance, parity.logits):
        assert max(figures) < 1e-4
    assert parity.captions == [True] * 3


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


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
