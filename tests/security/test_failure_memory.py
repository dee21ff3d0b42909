"""Memory of the device that runs out under a question: smaller batches give the same answer, or a typed error, once.

No GPU is needed: the networks are real, and their forward passes raise what PyTorch raises there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from cli_kit import GARDEN, SHELF

from codevqa import CodeVQA
from codevqa.core.errors import ModelError
from codevqa.models.blip.vision_encoder import VisionEncoder

QUESTION = "Is there a red bell in each picture?"


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    """An engine of its own: its batches stay smaller."""
    with CodeVQA.from_preset("mini") as made:
        yield made


class Scarce:
    """A forward pass that has memory for so many rows."""

    def __init__(self, whole: Any, most: int) -> None:
        self.whole, self.most = whole, most
        self.refused = 0

    def __call__(self, network: Any, pixels: torch.Tensor, *others: Any) -> Any:
        if len(pixels) > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")
        return self.whole(network, pixels, *others)


def scarce(monkeypatch: pytest.MonkeyPatch, most: int) -> Scarce:
    made = Scarce(VisionEncoder.forward, most)
    monkeypatch.setattr(VisionEncoder, "forward", lambda *given: made(*given))
    return made


@pytest.mark.slow
def test_a_question_whose_pictures_do_not_fit_together_has_the_same_answer(
    vqa: CodeVQA, mini: CodeVQA, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = mini.ask(SHELF, QUESTION)
    memory = scarce(monkeypatch, 1)
    found = vqa.ask(SHELF, QUESTION)
    assert memory.refused and (found.text, found.fallback) == (expected.text, expected.fallback)
    assert [(call.name, call.value) for call in found.trace.calls] == [
        (call.name, call.value) for call in expected.trace.calls
    ]


def test_a_question_that_does_not_fit_at_all_is_a_typed_error_and_served_once_it_does(vqa: CodeVQA) -> None:
    with pytest.MonkeyPatch.context() as patch:
        scarce(patch, 0)
        for _ in range(2):
            with pytest.raises(ModelError, match=r"ran out of memory on a single row\. Free some"):
                vqa.ask(GARDEN, "Is there a red house?")
    assert vqa.ask(GARDEN, "Is there a red house?").text in ("yes", "no")


def test_a_language_model_without_memory_is_a_typed_error_and_served_once_it_has_some(vqa: CodeVQA) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    model: Any = vqa.writer.language_model
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model.decoder, "_run", never)
        with pytest.raises(ModelError, match="ran out of memory on one prompt"):
            vqa.ask(GARDEN, "Is there a blue tree?")
    assert vqa.ask(GARDEN, "Is there a blue tree?").text in ("yes", "no")
