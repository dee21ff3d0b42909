"""Memory of the device that runs out under a question: a typed error, and the next question is served.

No GPU is needed: the networks are real, and their forward passes raise what PyTorch raises there. That smaller batches
give the same results is tested with the models.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cli_kit import GARDEN

from codevqa import CodeVQA
from codevqa.core.errors import ModelError
from codevqa.models.blip.vision_encoder import VisionEncoder


@pytest.mark.parametrize(
    ("part", "says"), [("eyes", r"ran out of memory on a single row\. Free some"), ("language", "not enough memory")]
)
def test_a_question_that_does_not_fit_is_a_typed_error_and_the_next_is_served(part: str, says: str) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB.")

    def nor(*_: Any, **__: Any) -> Any:  # as PyTorch says it on a processor
        raise RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")

    with CodeVQA.from_preset("mini") as vqa:
        model: Any = vqa.writer.language_model
        with pytest.MonkeyPatch.context() as patch:
            if part == "eyes":
                patch.setattr(VisionEncoder, "__call__", never)
            else:
                patch.setattr(model.decoder, "run", nor)
            for _ in range(2):
                with pytest.raises(ModelError, match=says):
                    vqa.ask(GARDEN, "Is there a red house?")
        assert vqa.ask(GARDEN, "Is there a red house?").text in ("yes", "no")
