"""Checkpoints that hold more than weights: none of it is run, and one clear line says what is wrong."""

from __future__ import annotations

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
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def refused(load: Callable[[], object], trap: Path) -> str:
    with pytest.raises(CodeVQAError) as caught:
        load()
    assert not trap.exists(), "it was run"
    said = str(caught.value)
    assert "\n" not in said and "weights_only" not in said and "trust_remote_code" not in said, said
    return said


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_language_model_in_a_pickle_that_runs_code(tmp_path: Path, how: str) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    poison(folder / "pytorch_model.bin", trap, how)
    refused(lambda: TransformersLM.from_pretrained(folder, device="cpu"), trap)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_matcher_in_a_pickle_that_runs_code(tmp_path: Path, how: str) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "matcher"
    shutil.copytree(WEIGHTS / "matcher", folder, ignore=shutil.ignore_patterns("*.safetensors"))
    poison(folder / "pytorch_model.bin", trap, how)
    refused(lambda: BlipMatcher.from_pretrained(str(folder), device="cpu"), trap)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_lavis_file_that_runs_code(tmp_path: Path, how: str) -> None:
    trap = tmp_path / "trap"
    poison(tmp_path / "model.pth", trap, how)
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    said = refused(lambda: convert_lavis(tmp_path / "model.pth", tmp_path / "vocab.txt", tmp_path / "out"), trap)
    assert "holds more than weights" in said


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_the_files_run_code_where_nothing_holds_them(tmp_path: Path, how: str) -> None:
    poison(tmp_path / "model.pth", tmp_path / "trap", how)
    with contextlib.suppress(RuntimeError):  # what comes after the code is no checkpoint
        torch.load(tmp_path / "model.pth", weights_only=False)
    assert (tmp_path / "trap").exists()


def poison(path: Path, trap: Path, how: str) -> None:
    state = {"model": {"head.weight": torch.zeros(2)}, "more": Touch(trap)}
    if how == "torch":
        torch.save(state, path)
    else:
        path.write_bytes(pickle.dumps(state, protocol=2))


def test_a_language_model_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    code = (
        f"import os\nos.mkdir({str(trap)!r})\nfrom transformers import LlamaForCausalLM as Own, LlamaConfig as Config\n"
    )
    (folder / "own.py").write_text(code)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "own.Own", "AutoConfig": "own.Config"}
    (folder / "config.json").write_text(json.dumps(config))
    assert isinstance(TransformersLM.from_pretrained(folder, device="cpu").model, LlamaNetwork), (
        "the architecture is one that is known"
    )
    assert not trap.exists()
    config["model_type"] = "own"
    (folder / "config.json").write_text(json.dumps(config))
    refused(lambda: TransformersLM.from_pretrained(folder, device="cpu"), trap)


def test_a_tokenizer_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", build_tiny_lm(tmp_path / "lm")
    (folder / "own.py").write_text(
        f"import os\nos.mkdir({str(trap)!r})\nfrom transformers import BertTokenizer as Own\n"
    )
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config |= {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", "own.Own"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with contextlib.suppress(CodeVQAError):  # or it is read as a tokenizer that is known
        TransformersLM.from_pretrained(folder, device="cpu")
    assert not trap.exists()


def test_a_retriever_that_brings_code(tmp_path: Path) -> None:
    trap, folder = tmp_path / "trap", tmp_path / "retriever"
    shutil.copytree(WEIGHTS / "retriever", folder)
    (folder / "own.py").write_text(f"import os\nos.mkdir({str(trap)!r})\n")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "own.Own"
    (folder / "modules.json").write_text(json.dumps(modules))
    refused(lambda: SentenceRetriever.from_pretrained(folder), trap)
