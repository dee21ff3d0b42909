"""A tiny causal language model on disk: a random Llama, and a byte-level BPE tokenizer trained on a few lines."""

from pathlib import Path
from typing import Any

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
    import torch
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
