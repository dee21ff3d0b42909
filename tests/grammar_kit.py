"""Programs against their grammar, byte by byte, and a random language model that knows pieces of programs alone."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tiny_lm import build_tiny_lm

from codevqa.core.trace import Form
from codevqa.models.grammar import Grammar
from codevqa.primitives import PrimitiveSet
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import load as load_prompts
from codevqa.writing.grammar import program_grammar
from codevqa.writing.prompt_forms import STOP, opening_line

NEEDED = "holding completions to grammars needs llguidance: pip install 'codevqa[constrained]'"

PIECES = (
    *('\nimg = open_image("Image7.jpg")', "\nanswer = ", "\nfound = ", "\nif ", "\n    answer = ", "\nelse:", ":"),
    *('query(img, "What is it?")', 'query(img, f"Is it {1}?")', 'get_pos(img, "red ball")', 'find_matching_image("x")'),
    *(
        'query("What is it?")',
        'unknown(img, "x")',
        "query(img, ",
        "str(",
        ")",
        '"yes"',
        '"no"',
        "1",
        "24",
        " == ",
        " and ",
    ),
    *(" else ", ", ", "\n# Image"),
)
"""What the model knows: no piece begins or ends with a letter that could lengthen a name."""


def grammar(prompts: str = "gqa", form: Form = "image", *, chat: bool = False) -> Grammar:
    """The grammar of programs after one of our prompt sets."""
    chosen = VISUAL.subset(load_prompts(prompts).primitives)
    return program_grammar(chosen, opening_line(form, 1), STOP[0], chat=chat)


def of(primitives: PrimitiveSet) -> Grammar:
    """The grammar of programs that call these, between fences."""
    return program_grammar(primitives, opening_line("image", 1), STOP[0], chat=True)


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def accepts(lark: str, text: str, *, whole: bool = True) -> bool:
    """Whether a text is of a grammar, or begins one that is."""
    matcher = _matcher(lark).deep_copy()
    tokens = list(text.encode())
    taken = matcher.try_consume_tokens(tokens)
    return bool(taken == len(tokens) and (matcher.is_accepting() or not whole))


@functools.cache
def _matcher(lark: str) -> Any:
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(_Bytes())), LLMatcher.grammar_from_lark(lark))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


class _Bytes:
    """A vocabulary of single bytes."""

    eos_token_id, bos_token_id, special_token_ids = 256, None, (256,)
    tokens = (*(bytes([byte]) for byte in range(256)), b"<end>")

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


def build_noise(folder: Path, seed: int = 0) -> Path:
    """Writes a model with random weights that says nothing but :data:`PIECES`, in any order."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    build_tiny_lm(folder, context=1024, seed=seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(list(PIECES))
    model = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(seed)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():
        head = model.get_output_embeddings().weight
        known = [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(PIECES))]
        head[[token for token in range(len(head)) if token not in known]] *= 0.01
        head[known] = torch.randn(len(known), head.shape[1])
        # One that is louder at ends comes to one.
        head[[known[0], known[-1]]] *= 2
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
