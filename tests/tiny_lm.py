"""Tiny random models on disk: a Llama with a byte-level BPE trained on a few lines, Idefics3 and Qwen3-VL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

CORPUS = [
    "# Image 1: Is the red ball left of the box?",
    'img = open_image("Image1.jpg")',
    'ball_x, ball_y = get_pos(img, "red ball")',
    'box_x, box_y = get_pos(img, "box")',
    'if ball_x < box_x:\n    answer = "yes"\nelse:\n    answer = "no"',
    'answer = query(img, "What color is the car?")',
    "Please answer the question according to the above context.",
    "===\nContext: a dog on a sofa. a cat under the table.\n===\nQ: What is on the sofa?\nA: dog",
]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer(*, chat_template: str | None = CHAT_TEMPLATE, bos: bool = True, vocab_size: int = 400) -> Any:
    """Trains the tokenizer; with ``bos`` it puts ``<s>`` before every text, as Llama's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=10**9
    )
    if chat_template is not None:
        fast.chat_template = chat_template
    return fast


def build_tiny_lm(
    folder: Path,
    *,
    chat_template: str | None = CHAT_TEMPLATE,
    bos: bool = True,
    context: int = 512,
    dtype: str = "float32",
    vocab_size: int = 400,
) -> Path:
    """Writes the model and its tokenizer to ``folder`` and returns it.

    Weights are drawn wide (std 0.25), so that greedy output depends on the prompt and logits are not near-ties.
    """
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = build_tokenizer(chat_template=chat_template, bos=bos, vocab_size=vocab_size)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    tokens = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    more = {"num_key_value_heads": 2, "max_position_embeddings": context, "tie_word_embeddings": False}
    config = LlamaConfig(**sizes, **tokens, **more, initializer_range=0.25)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
