"""Loading language models, also in eight bits: without transformers where our layers do; one line for what is wrong."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from lm_kit import folder_of, llama, mixed
from tiny_lm import build_tiny_lm

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.causal_lm import TransformersLM, int8_linear
from codevqa.models.causal_lm.int8_linear import Int8Linear, available, weights
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.protocols import GenerationRequest
from codevqa.presets.configuration import configure

PROMPTS = ["What color is the car?", "yes", "box_x, box_y = get_pos(img,"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_lm(tmp_path_factory.mktemp("lm"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_weights_load_as_float32_on_the_cpu(tmp_path: Path, dtype: str) -> None:
    lm = TransformersLM.from_pretrained(build_tiny_lm(tmp_path, dtype=dtype), device="cpu")
    assert lm.computes == "float32 on cpu"
    assert lm.generate([GenerationRequest("x", 4)])[0].completion_tokens == 4
    kept = TransformersLM.from_pretrained(tmp_path, device="cpu", dtype=dtype)
    assert kept.computes == f"{dtype} on cpu" and not isinstance(kept.model, LlamaNetwork)


@pytest.mark.parametrize("loop", [True, False])
def test_sampling_settings_of_a_checkpoint_do_not_seep_in(tmp_path: Path, folder: Path, loop: bool) -> None:
    build_tiny_lm(tmp_path)
    settings = {"do_sample": True, "temperature": 5.0, "top_k": 3, "repetition_penalty": 3.0, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    lm, other = (TransformersLM.from_pretrained(path, device="cpu", loop=loop) for path in (folder, tmp_path))
    requests = [GenerationRequest(prompt, 24) for prompt in PROMPTS]
    assert other.generate(requests) == lm.generate(requests)


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
SPOILT: dict[str, tuple[str, str | dict[str, int] | None, str]] = {
    "no weights": ("model.safetensors", None, "no file named model.safetensors"),
    "cut weights": ("model.safetensors", "cut", "model.safetensors is damaged, or half of it is missing"),
    "bad config": ("config.json", "{not json", "not a valid JSON"),
    "unknown architecture": ("config.json", '{"model_type": "abacus"}', "abacus"),
    "no tokenizer": ("tokenizer.json", None, "tokenizer of .* Its tokenizer.json must be there"),
    "a pointer": ("model.safetensors", POINTER, "model.safetensors is a pointer of Git LFS, .* Run git lfs pull"),
    "another width": ("config.json", {"hidden_size": 32}, "of another shape"),
    "more layers": ("config.json", {"num_hidden_layers": 3}, "9 weights are missing"),
    "fewer layers": ("config.json", {"num_hidden_layers": 1}, "no place for 9 of its weights, e.g. model.layers.1"),
}


@pytest.mark.parametrize(("name", "content", "says"), SPOILT.values(), ids=SPOILT)
def test_spoilt_files(tmp_path: Path, folder: Path, name: str, content: str | dict[str, int] | None, says: str) -> None:
    shutil.copytree(folder, tmp_path / "lm")
    file = tmp_path / "lm" / name
    if content is None:
        file.unlink()
    elif isinstance(content, dict):
        file.write_text(json.dumps(json.loads(file.read_text()) | content))
    else:
        file.write_text(content)
    with pytest.raises(ModelNotFoundError, match=says) as caught:
        TransformersLM.from_pretrained(tmp_path / "lm", device="cpu")
    assert len(str(caught.value)) < 500


@pytest.mark.usefixtures("hub_cache")
def test_missing_models(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="No model folder"):
        TransformersLM.from_pretrained(tmp_path / "none")
    with pytest.raises(ModelNotFoundError, match="No model folder"):
        TransformersLM.from_pretrained("./none")
    with pytest.raises(ModelNotFoundError, match="nobody/no-such-model"):
        TransformersLM.from_pretrained("nobody/no-such-model", device="cpu")


@pytest.mark.parametrize("loop", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_it_is_silent_and_needs_transformers_only_where_that_decodes(tmp_path: Path, loop: bool) -> None:
    build_tiny_lm(tmp_path, chat_template=None)
    # transformers has advice on these settings, and another for outputs longer than the context.
    settings = {"do_sample": False, "temperature": 0.5, "top_k": 3, "eos_token_id": 2}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    code = (
        "import sys; from codevqa.models.protocols import GenerationRequest as R;"
        "from codevqa.models.causal_lm import TransformersLM;"
        "lm = TransformersLM.from_pretrained(sys.argv[1], device='cpu', loop=LOOP);"
        "assert len(lm.generate([R('some words ' * 9 + 'x' * i, 480, shared=90) for i in range(2)])) == 2;"
        "assert ('transformers' in sys.modules) is not LOOP"
    ).replace("LOOP", str(loop))
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


in_eight_bits = pytest.mark.skipif(not available(), reason="PyTorch has no products in eight bits on this processor")


@in_eight_bits
def test_products_are_those_of_the_layer_but_for_rounding_in_any_company() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 48)
    inputs = torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    coarse = Int8Linear(layer.weight, layer.bias)
    products, expected = coarse(inputs) - layer.bias, inputs @ layer.weight.T
    assert ((products - expected).norm(dim=1) / expected.norm(dim=1) < 0.03).all(), "each token has a scale of its own"
    assert all(torch.equal(coarse(inputs[place : place + 1])[0], row) for place, row in enumerate(coarse(inputs)))


@in_eight_bits
def test_a_model_in_eight_bits_writes_the_same_in_any_company() -> None:
    lm = TransformersLM.from_pretrained(folder_of(llama), dtype="int8")
    exact = TransformersLM.from_pretrained(folder_of(llama), device="cpu", dtype="float32")
    for language_model, quantised in ((lm, True), (exact, False)):
        assert any(isinstance(layer, Int8Linear) for layer in language_model.model.modules()) is quantised
    assert weights(lm.model) == weights(exact.model) and lm.computes == "float32 on cpu"
    asked = mixed()
    same = [
        completion == lm.generate([request])[0] for completion, request in zip(lm.generate(asked), asked, strict=True)
    ]
    assert sum(same) >= len(asked) - 2, "rounding may turn a tie"


@in_eight_bits
def test_where_pytorch_has_no_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available()
    available.cache_clear()

    fail = Mock(side_effect=RuntimeError("Didn't find engine for operation quantized::linear_prepack"))
    monkeypatch.setattr(int8_linear.Int8Linear, "forward", fail)
    try:
        assert not available()
        with pytest.raises(SetupError, match="no products in eight bits"):
            TransformersLM.from_pretrained(folder_of(llama), dtype="int8")
        assert configure("base").here().parts["language_model"].startswith("transformers:")
    finally:
        available.cache_clear()
