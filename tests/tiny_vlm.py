"""Tiny random vision-language models, written to disk as any other: Idefics3 and Qwen3-VL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tiny_lm import build_tokenizer

TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{% for one in message['content'] %}"
    "{% if one['type'] == 'image' %}PLACE{% else %}{{ one['text'] }}{% endif %}{% endfor %}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
_SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def write_idefics3(folder: Path, *, context: int = 1024, template: str = TEMPLATE) -> str:
    """Writes a random Idefics3 of 32 pixels a tile, at most 4 and the whole picture, and returns its folder."""
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration, Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    rows = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
    named = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
    tokenizer = _tokenizer([*named, *rows])
    config = Idefics3Config(
        text_config={"model_type": "llama", **_text(tokenizer, context)},
        vision_config={**_SIZES, "image_size": 32, "patch_size": 8},
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=0,
    )
    pictures = Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = Idefics3Processor(
        pictures, tokenizer, image_seq_len=4, chat_template=template.replace("PLACE", "<image>")
    )
    return _save(Idefics3ForConditionalGeneration, config, processor, folder)


def write_qwen3_vl(folder: Path) -> str:
    """Writes a random Qwen3-VL with features of two depths, and returns its folder. Needs torchvision."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor, Qwen3VLVideoProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    tokenizer = _tokenizer(["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"])
    named = {"image": "image_pad", "video": "video_pad", "vision_start": "vision_start", "vision_end": "vision_end"}
    ids = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>") for name, token in named.items()}
    rope = {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 1e4}
    seen = {"depth": 3, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "patch_size": 8}
    seen["out_hidden_size"] = 64
    config = Qwen3VLConfig(
        text_config={**_text(tokenizer, 1024), "head_dim": 16, "rope_parameters": rope},
        vision_config=seen | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0, 1]},
        **ids,
    )
    kind = {"patch_size": 8, "size": {"shortest_edge": 32 * 32, "longest_edge": 64 * 64}}
    template = TEMPLATE.replace("PLACE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = Qwen3VLProcessor(
        Qwen2VLImageProcessorPil(**kind), tokenizer, Qwen3VLVideoProcessor(**kind), chat_template=template
    )
    return _save(Qwen3VLForConditionalGeneration, config, processor, folder)


def _tokenizer(special: Sequence[str]) -> Any:
    tokenizer = build_tokenizer(chat_template=None, bos=False)
    tokenizer.add_special_tokens({"additional_special_tokens": list(special)})
    return tokenizer


def _text(tokenizer: Any, context: int) -> dict[str, Any]:
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(tokenizer)}
    return {**_SIZES, **tokens, "num_key_value_heads": 2, "max_position_embeddings": context}


def _save(kind: Any, config: Any, processor: Any, folder: Path) -> str:
    torch.manual_seed(0)
    network = kind(config)
    with torch.no_grad():  # drawn wide, so that answers depend on pictures
        for name, weight in network.named_parameters():
            if weight.dim() > 1 and "norm" not in name:
                weight.copy_(torch.randn(weight.shape) * 1.2 / weight[0].numel() ** 0.5)
    network.save_pretrained(folder)
    processor.save_pretrained(folder)
    return str(folder)
