"""Checkpoints that hold more than weights: none of it is run, and one clear line says what is wrong."""

import contextlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_lm import build_tiny_lm

from codevqa.core.errors import CodeVQAError
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.lavis_names import convert_lavis
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.retrieval import SentenceRetriever

WEIGHTS = Path(__file__).resolve().parents[2] / "codevqa" / "mini" / "weights"


class Touch:
    """Unpickled, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def refused(load: Callable[[], object], trap: Path) -> None:
    with pytest.raises(CodeVQAError) as caught:
        load()
    assert not trap.exists(), "it was run"
    said = str(caught.value)
    assert "\n" not in said and "weights_only" not in said and "trust_remote_code" not in said, said


@pytest.mark.parametrize("how", ["pickle", "torch"])
@pytest.mark.parametrize("part", ["language model", "matcher", "file of LAVIS"])
def test_a_pickle_that_runs_code(tmp_path: Path, part: str, how: str) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "model"
    shutil.copytree(WEIGHTS / "matcher", folder) if part == "matcher" else build_tiny_lm(folder)
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    file, vocabulary = folder / "pytorch_model.bin", folder / "vocab.txt"
    state = {"model": {"head.weight": torch.zeros(2)}, "more": Touch(trap)}
    torch.save(state, file) if how == "torch" else file.write_bytes(pickle.dumps(state, protocol=2))
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    loads: dict[str, Callable[[], object]] = {
        "language model": lambda: TransformersLM.from_pretrained(folder, device="cpu"),
        "matcher": lambda: BlipMatcher.from_pretrained(str(folder), device="cpu"),
        "file of LAVIS": lambda: convert_lavis(file, vocabulary, tmp_path / "out"),
    }
    refused(loads[part], trap)
    with contextlib.suppress(RuntimeError):  # what comes after the code is no checkpoint
        torch.load(file, weights_only=False)
    assert trap.exists(), "the attack itself is wrong"


def bring(folder: Path, trap: Path, imports: str = "") -> None:
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(trap)!r})\n{imports}\n")


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_language_model_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    bring(folder, trap, "from transformers import LlamaForCausalLM as Own, LlamaConfig as Config")
    edit(folder / "config.json", auto_map={"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Config"})
    known = TransformersLM.from_pretrained(folder, device="cpu")
    assert isinstance(known.model, LlamaNetwork) and not trap.exists(), "the architecture is one that is known"
    edit(folder / "config.json", model_type="own")
    refused(lambda: TransformersLM.from_pretrained(folder, device="cpu"), trap)


def test_a_tokenizer_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    bring(folder, trap, "from transformers import BertTokenizer as Own")
    edit(folder / "tokenizer_config.json", tokenizer_class="Own", auto_map={"AutoTokenizer": ["own.Own", "own.Own"]})
    with contextlib.suppress(CodeVQAError):  # or it is read as a tokenizer that is known
        TransformersLM.from_pretrained(folder, device="cpu")
    assert not trap.exists()


def test_a_retriever_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "retriever"
    shutil.copytree(WEIGHTS / "retriever", folder)
    bring(folder, trap)
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "own.Own"
    (folder / "modules.json").write_text(json.dumps(modules))
    refused(lambda: SentenceRetriever.from_pretrained(folder), trap)
