"""From a preset's name to models: what is loaded, what is refused, what stays audible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from codevqa.core.errors import SetupError
from codevqa.core.settings import Settings, WriterSettings
from codevqa.models.causal_lm import int8_linear
from codevqa.presets.assembly import prompt_writer, whole
from codevqa.presets.checkpoints import missing
from codevqa.presets.configuration import Configuration, Layer, configure


def configured(name: str, settings: Settings | None = None, /, **values: Any) -> Configuration:
    return configure(name, [Layer("given", values)], settings=settings)


def test_the_paper_s_setting_leaves_only_the_language_model_to_be_chosen() -> None:
    with pytest.raises(SetupError, match="--lm"):
        whole(configure("paper"))
    assert missing(None) != ""
    made = whole(configured("paper", language_model="openai-completion:some-model"))
    for role, file in (("matcher", "retrieval"), ("captioner", "caption")):
        assert made.parts[role].endswith(f"/BLIP/models/model_large_{file}_coco_train2014.pth")
        assert made.options[role] == {"dtype": "float32"}
    query, writer = made.settings.query, made.settings.writer
    assert (query.patches, query.selection, query.form) == (20, "question", "completion")
    assert not (query.witness or query.stated or query.fit)
    assert (writer.repairs, writer.fit, writer.form) == (0, False, "completion")


def test_a_chat_server_gets_the_chat_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    specs = {f"{name}:some": name for name in ("openai", "openai-chat", "openai-completion")}
    specs["transformers:@mini/weights/lm"] = "a model without chat template"
    found = {}
    for spec, name in specs.items():
        made = configured("mini", **{"language_model": spec, "writer.selection": "fixed"})
        found[name] = prompt_writer(made).prompt_form
    assert found == dict(zip(specs.values(), ("chat", "chat", "completion", "completion"), strict=True))


def test_what_is_missing_is_told_without_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert "OPENAI_API_KEY" in missing("openai-chat:gpt-4.1-mini")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert missing("openai-chat:mine") == "", "a server of one's own needs no key"
    assert missing("blip:@mini/weights/matcher") == missing("sentence:@mini/weights/retriever") == ""
    assert missing(f"transformers:{tmp_path}") == "folder has no weights"
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    assert missing(f"blip:{tmp_path}") == ""
    assert "network" in missing("blip:nobody/nothing-at-all")


@pytest.mark.parametrize(("gpu", "back_end"), [(False, "transformers-int8"), (True, "transformers")])
def test_base_takes_eight_bits_and_fewer_examples_only_where_there_is_no_gpu(
    gpu: bool, back_end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(int8_linear, "available", lambda: True)
    here = configure("base").here()
    spec = here.parts["language_model"]
    assert spec == f"{back_end}:Qwen/Qwen2.5-Coder-1.5B-Instruct"
    assert here.settings.writer.shots == (12 if gpu else 8)
    told = configured("base", Settings(writer=WriterSettings(shots=4))).here()
    assert told.settings.writer.shots == 4
    # A part or a precision that was asked for by name is kept, and so is a preset that has no other.
    other = configured("base", language_model="openai:x").here()
    assert (other.parts["language_model"], other.settings.writer.shots) == ("openai:x", 12)
    exact = configured("base", **{"language_model.dtype": "float32"}).here()
    assert exact.parts["language_model"] == f"transformers{spec[spec.index(':') :]}"
    placed = configured("base", **{"language_model.device": "cpu"}).here()
    assert (placed.parts["language_model"], placed.options["language_model"]) == (spec, {"device": "cpu"})
