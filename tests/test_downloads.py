"""From a preset's name to models: what is fetched, loaded and refused; without a way to them, that is told at once."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_kit import GARDEN, CommandLine
from hub_kit import COMMIT, Hub, cached, serve_hub
from safetensors.torch import load_file, save_file
from tiny_detector import write_owlv2
from tiny_lm import build_tiny_lm

from codevqa.core.errors import SetupError
from codevqa.core.settings import Settings, WriterSettings
from codevqa.models.causal_lm import int8_linear
from codevqa.presets.assembly import load, prompt_writer, whole
from codevqa.presets.checkpoints import NOT_HERE, files_to_load, missing, resolve
from codevqa.presets.configuration import Configuration, Layer, configure

MINI = Path(resolve("@mini/weights"))
PARTS = {
    "matcher": f"blip:tiny/matcher@{COMMIT}",
    "captioner": "blip:tiny/captioner",
    "language_model": "transformers:tiny/lm",
    "retriever": "sentence:tiny/retriever",
}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Has the embedded models, with what no back end of ours loads beside them."""
    repositories = {}
    for part in ("matcher", "captioner", "lm", "retriever"):
        folder = MINI / part
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        more = dict.fromkeys(("tf_model.h5", "pytorch_model.bin", "onnx/model.onnx"), b"0")
        repositories[f"tiny/{part}"] = files | more
    with serve_hub(tmp_path / "cache", repositories) as served:
        yield served


@pytest.fixture
def preset(tmp_path: Path) -> str:
    """A preset whose models are the hub's."""
    path = tmp_path / "tiny.toml"
    path.write_text("\n".join(f'{role} = "{spec}"' for role, spec in PARTS.items()))
    return str(path)


def run(hub: Hub, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(hub.command(*words), capture_output=True, text=True, timeout=500, env=hub.environment)


def test_sizes_come_first_and_nothing_else_where_only_they_are_asked_for(hub: Hub, preset: str) -> None:
    done = run(hub, "download", preset, "--dry-run")
    assert done.returncode == 0, done.stderr
    wanted = sum(
        len(data)
        for files in hub.repositories.values()
        for name, data in files.items()
        if name in files_to_load([*files])
    )
    assert f"{wanted / 1e6:.1f} MB to download:\n" in done.stdout
    assert hub.files == [] and len(hub.asked) == len(PARTS)
    nowhere = {**hub.environment, "HF_ENDPOINT": "http://127.0.0.1:9"}
    words = hub.command("download", "base", "--dry-run")
    offline = subprocess.run(words, capture_output=True, text=True, env=nowhere, check=True).stdout
    assert "Sizes are computed" in offline and "5.4 GB to download:\n" in offline
    Path(preset).write_text('matcher = "blip:a/b"\ncaptioner = "blip:a/c"\nlanguage_model = "transformers:a/d"\n')
    for retriever, total in (("all-mpnet-base-v2", "at least 400.0 MB and 3 files"), ("a/e", "4 files")):
        words = hub.command("download", preset, "--dry-run", "--set", f"retriever=sentence:{retriever}")
        offline = subprocess.run(words, capture_output=True, text=True, env=nowhere, check=True).stdout
        assert f"\n{total} of unknown size to download:\n" in offline, offline


@pytest.mark.slow
def test_only_what_is_loaded_comes_goes_on_where_it_broke_off_and_is_not_asked_for_again(hub: Hub, preset: str) -> None:
    hub.breaks_at = 11_000_000  # huggingface_hub keeps what came in pieces of 10 MB
    done = run(hub, "download", preset)
    assert done.returncode == 0, done.stderr
    assert any("model.safetensors bytes=10485760-" in request for request in hub.asked), hub.asked
    assert "model.safetensors" in hub.files
    assert not {"tf_model.h5", "pytorch_model.bin", "onnx/model.onnx"} & set(hub.files)
    hub.asked.clear()
    hub.down = True
    again = run(hub, "download", preset)
    assert (again.returncode, again.stdout.count("\n")) == (0, 1), again.stdout
    done = run(hub, "ask", str(GARDEN), "-q", "Is it red?", "--preset", preset, "--set", "matcher.block=2", "--json")
    assert (done.returncode, hub.asked) == (0, []), done.stderr
    named = {name: f"tiny/{name}" for name in ("captioner", "retriever")} | {"matcher": f"tiny/matcher@{COMMIT}"}
    assert json.loads(done.stdout)["models"] == named | dict.fromkeys(("writer", "reader"), "tiny/lm")


@pytest.mark.slow
def test_a_file_with_other_bytes_than_the_hub_says_is_not_kept(hub: Hub, preset: str) -> None:
    assert run(hub, "download", preset, "--set", "captioner=blip:@mini/weights/captioner").returncode == 0
    hub.damages = True
    done = run(hub, "download", preset)
    assert done.returncode == 2 and "tiny/captioner came other files" in done.stderr.splitlines()[-1]
    hub.damages = False
    hub.asked.clear()
    assert run(hub, "download", preset).returncode == 0
    assert set(hub.files) == set(files_to_load([*hub.repositories["tiny/captioner"]])), (
        "all that was damaged came again"
    )


def test_a_hub_that_fails_or_cannot_be_reached_is_asked_once_and_told_in_one_line(hub: Hub, preset: str) -> None:
    hub.down = True
    done = run(hub, "ask", str(GARDEN), "-q", "Is it red?", "--preset", preset)
    assert (done.returncode, done.stdout, len(hub.asked)) == (2, "", 1), hub.asked
    assert done.stderr.count("\n") == 1 and "tiny/matcher" in done.stderr and "503" in done.stderr
    hub.url = "http://127.0.0.1:9"
    done = run(hub, "ask", str(GARDEN), "-q", "Is it red?", "--preset", "base")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "run codevqa download base;" in done.stderr


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model in two files, of which its repository has other kinds too."""
    folder = build_tiny_lm(tmp_path_factory.mktemp("sharded"))
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    shards = {f"model-0000{1 + half}-of-00002.safetensors": names[half::2] for half in (0, 1)}
    for shard, held in shards.items():
        save_file({name: weights[name] for name in held}, folder / shard, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    others = {name: f"pytorch_model-{place}-of-00009.bin" for place, name in enumerate(names)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": others}))
    return folder


@pytest.mark.parametrize("lost", ["model-00002-of-00002.safetensors", "tokenizer.json", "model.safetensors.index.json"])
def test_half_a_download_is_not_whole(lost: str, sharded: Path, hub_cache: Path) -> None:
    folder = cached(hub_cache, "some/model", sharded)
    assert missing("transformers:some/model") == "", "the shards of a kind that is not loaded are not missed"
    (folder / lost).unlink()
    assert missing("transformers:some/model") == NOT_HERE


def test_a_part_is_loaded_from_its_revision(sharded: Path, tmp_path: Path, hub_cache: Path) -> None:
    folders = {
        "transformers:some/model": sharded,
        "sentence:some/retriever": MINI / "retriever",
        "zero-shot:some/detector": Path(write_owlv2(tmp_path / "detector")),
    }
    roles = ("language_model", "retriever", "detector")
    for role, (spec, folder) in zip(roles, folders.items(), strict=True):
        cached(hub_cache, spec.partition(":")[2], folder)
        for revision in (COMMIT, "main"):
            part = load(role, f"{spec}@{revision}")
            assert part.name == f"{spec.partition(':')[2]}@{revision}"


def configured(name: str, settings: Settings | None = None, /, **values: Any) -> Configuration:
    return configure(name, [Layer("given", values)], settings=settings)


def test_the_paper_s_setting_leaves_only_the_language_model_to_be_chosen() -> None:
    with pytest.raises(SetupError, match="--lm"):
        whole(configure("paper"))
    assert missing(None) != ""
    configuration = whole(configured("paper", language_model="openai-completion:some-model"))
    for role, file in (("matcher", "retrieval"), ("captioner", "caption")):
        assert configuration.parts[role].endswith(f"/BLIP/models/model_large_{file}_coco_train2014.pth")
        assert configuration.options[role] == {"dtype": "float32"}
    query, writer = configuration.settings.query, configuration.settings.writer
    assert (query.patches, query.selection, query.form) == (20, "question", "completion")
    assert not (query.witness or query.stated or query.fit)
    assert (writer.repairs, writer.fit, writer.form) == (0, False, "completion")


def test_a_chat_server_gets_the_chat_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    specs = {f"{name}:some": name for name in ("openai", "openai-chat", "openai-completion")}
    specs["transformers:@mini/weights/lm"] = "a model without chat template"
    forms = {}
    for spec, name in specs.items():
        configuration = configured("mini", **{"language_model": spec, "writer.selection": "fixed"})
        forms[name] = prompt_writer(configuration).prompt_form
    assert forms == dict(zip(specs.values(), ("chat", "chat", "completion", "completion"), strict=True))


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


def test_api_retrieves_with_what_lies_here_and_models_says_so(hub_cache: Path, codevqa: CommandLine) -> None:
    def listed() -> str:
        row = json.loads(codevqa("models", "--json").stdout)["api"]["parts"]["retriever"]
        assert row["missing"] == "" and row["id"] == configure("api").here().parts["retriever"]
        return str(row["id"])

    assert listed() == "sentence:@mini/weights/retriever"
    folder = hub_cache / "models--sentence-transformers--all-mpnet-base-v2"
    shutil.copytree(MINI / "retriever", folder / "snapshots" / COMMIT)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    assert listed() == "sentence:sentence-transformers/all-mpnet-base-v2"
    asked = configured("api", retriever="sentence:@mini/weights/lm").here()
    assert asked.parts["retriever"] == "sentence:@mini/weights/lm"


@pytest.mark.parametrize(("gpu", "back_end"), [(False, "transformers-int8"), (True, "transformers")])
def test_base_takes_eight_bits_only_without_a_gpu(gpu: bool, back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(int8_linear, "available", lambda: True)
    here = configure("base").here()
    spec = here.parts["language_model"]
    assert spec == f"{back_end}:Qwen/Qwen2.5-Coder-1.5B-Instruct"
    assert here.settings.writer.shots == (12 if gpu else 8)
    custom = configured("base", Settings(writer=WriterSettings(shots=4))).here()
    assert custom.settings.writer.shots == 4
    # A part or a precision that was asked for by name is kept, and so is a preset that has no other.
    other = configured("base", language_model="openai:x").here()
    assert (other.parts["language_model"], other.settings.writer.shots) == ("openai:x", 12)
    exact = configured("base", **{"language_model.dtype": "float32"}).here()
    assert exact.parts["language_model"] == f"transformers{spec[spec.index(':') :]}"
    placed = configured("base", **{"language_model.device": "cpu"}).here()
    assert (placed.parts["language_model"], placed.options["language_model"]) == (spec, {"device": "cpu"})
