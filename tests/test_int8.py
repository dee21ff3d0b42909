"""Language models whose linear layers are in eight bits."""

from __future__ import annotations

import pytest
import torch
from lm_kit import folder_of, llama, mixed

from codevqa.core.errors import SetupError
from codevqa.models.causal_lm import TransformersLM, int8_linear
from codevqa.models.causal_lm.int8_linear import Int8Linear, available, weights
from codevqa.presets.configuration import configure

pytestmark = pytest.mark.skipif(not available(), reason="PyTorch has no products in eight bits on this processor")


def test_products_are_those_of_the_layer_but_for_rounding_in_any_company() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 48)
    inputs = torch.randn(9, 64) * torch.logspace(-3, 3, 9)[:, None]
    coarse = Int8Linear(layer.weight, layer.bias)
    made, expected = coarse(inputs) - layer.bias, inputs @ layer.weight.T
    assert ((made - expected).norm(dim=1) / expected.norm(dim=1) < 0.03).all(), "each token has a scale of its own"
    assert all(torch.equal(coarse(inputs[place : place + 1])[0], row) for place, row in enumerate(coarse(inputs)))


def test_a_model_in_eight_bits_writes_the_same_in_any_company() -> None:
    lm = TransformersLM.from_pretrained(folder_of(llama), dtype="int8")
    exact = TransformersLM.from_pretrained(folder_of(llama), device="cpu", dtype="float32")
    for one, quantised in ((lm, True), (exact, False)):
        assert any(isinstance(layer, Int8Linear) for layer in one.model.modules()) is quantised
    assert weights(lm.model) == weights(exact.model) and lm.computes == "float32 on cpu"
    asked = mixed()
    same = [one == lm.generate([request])[0] for one, request in zip(lm.generate(asked), asked, strict=True)]
    assert sum(same) >= len(asked) - 2, "rounding may turn a tie"


def test_where_pytorch_has_no_such_products(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available()
    available.cache_clear()

    def fail(*given: object) -> None:
        raise RuntimeError("Didn't find engine for operation quantized::linear_prepack")

    monkeypatch.setattr(int8_linear.Int8Linear, "forward", fail)
    try:
        assert not available()
        with pytest.raises(SetupError, match="no products in eight bits"):
            TransformersLM.from_pretrained(folder_of(llama), dtype="int8")
        assert configure("base").here().parts["language_model"].startswith("transformers:")
    finally:
        available.cache_clear()
