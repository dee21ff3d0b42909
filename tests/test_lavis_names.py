"""A LAVIS checkpoint becomes a folder that loads; anything else is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import WORDS

from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.blip.lavis_names import convert_lavis, rename_lavis


def test_names_and_what_only_training_needs() -> None:
    zero = torch.zeros(1)
    renamed = rename_lavis(
        dict.fromkeys(
            (
                "visual_encoder.cls_token",
                "visual_encoder.blocks.11.attn.proj.bias",
                "visual_encoder.blocks.0.attn.qkv.weight",
                "visual_encoder.blocks.2.norm2.weight",
                "visual_encoder.norm.bias",
                "text_encoder.encoder.layer.3.crossattention.self.key.bias",
                "itm_head.weight",
                # only for training
                "visual_encoder_m.cls_token",
                "text_proj_m.weight",
                "image_queue",
                "queue_ptr",
                "ptr_queue",
                "idx_queue",
                "temp",
                "text_encoder.embeddings.position_ids",
            ),
            zero,
        )
    )
    assert sorted(renamed) == [
        "itm_head.weight",
        "text_encoder.encoder.layer.3.crossattention.self.key.bias",
        "vision_model.embeddings.class_embedding",
        "vision_model.encoder.layers.0.self_attn.qkv.weight",
        "vision_model.encoder.layers.11.self_attn.projection.bias",
        "vision_model.encoder.layers.2.layer_norm2.weight",
        "vision_model.post_layernorm.bias",
    ]


def test_files_that_are_not_lavis_checkpoints(tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(WORDS))
    with pytest.raises(ModelNotFoundError, match="No file at"):
        convert_lavis(tmp_path / "none.pth", vocabulary, tmp_path / "out")
    torch.save({"model": {"head.weight": torch.zeros(2)}}, tmp_path / "other.pth")
    with pytest.raises(SetupError, match="not a BLIP checkpoint"):
        convert_lavis(tmp_path / "other.pth", vocabulary, tmp_path / "out")
    (tmp_path / "damaged.pth").write_bytes(b"no weights")
    with pytest.raises(SetupError) as caught:
        convert_lavis(tmp_path / "damaged.pth", vocabulary, tmp_path / "out")
    assert "damaged.pth" in str(caught.value) and "\n" not in str(caught.value)
