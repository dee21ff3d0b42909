"""From a preset's name to models: what is loaded, what is refused, what stays audible."""

from __future__ import annotations

import pytest

from codevqa.errors import UnknownNameError
from codevqa.models.presets import PRESETS, preset
from codevqa.models.registry import build, missing, parse, prompt_sets


def test_downloads_stay_visible_after_loading() -> None:
    from huggingface_hub.utils import are_progress_bars_disabled

    writer, models, settings = build("mini")
    assert not are_progress_bars_disabled()
    assert models.reader is writer.language_model and settings == PRESETS["mini"].settings


def test_a_prompt_set_replaces_only_the_forms_it_has_examples_of() -> None:
    sets = prompt_sets(preset("large"), "nlvr2")
    assert (sets["image"].name, sets["set"].name) == ("gqa", "nlvr2")
    sets = prompt_sets(preset("large"), None)
    assert (sets["image"].name, sets["set"].name) == ("gqa", "covr")
    assert {one.name for one in prompt_sets(preset("base"), "mini").values()} == {"mini"}


@pytest.mark.parametrize(
    ("role", "spec"),
    [("matcher", "Salesforce/blip"), ("matcher", "openai:x"), ("language_model", "openai:"), ("painter", "blip:x")],
)
def test_unknown_parts_are_refused(role: str, spec: str) -> None:
    with pytest.raises(UnknownNameError):
        parse(role, spec)


def test_every_preset_names_back_ends_that_exist() -> None:
    for one in PRESETS.values():
        for role, spec in one.parts.items():
            parse(role, spec)


def test_a_chat_server_gets_the_chat_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    writer, _, settings = build("mini", parts={"language_model": "openai-chat:some-model"})
    assert settings.writer.form == writer.settings.form == "chat"
    writer, _, settings = build("mini", parts={"language_model": "openai:some-model"})
    assert settings.writer.form == "completion"


def test_what_is_missing_is_told_without_loading(tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    assert missing("blip:@mini/weights/matcher") == ""
    assert missing("sentence:@mini/weights/retriever") == ""
    assert missing(f"transformers:{empty}") == "folder has no weights"
    assert "network" in missing("blip:nobody/nothing-at-all")


def test_a_server_s_key_is_named_when_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "OPENAI_API_KEY" in missing("openai-chat:gpt-4.1-mini")
