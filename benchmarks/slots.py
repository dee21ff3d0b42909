"""Our decoding in slots beside transformers' own ways, on one GPU.

    python benchmarks/slots.py slots|continuous|generate [FOLDER]

FOLDER holds a language model; without it, random weights of a 1.5B's sizes serve. Timed, twice: 150 texts of 64 tokens
and 750 of 8, after prompts of some 1,000 tokens with beginnings in common, as programs and readers have. No text ends
early. ``continuous`` is transformers' continuous batching with shared prefixes and CUDA graphs.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen2Config, Qwen2ForCausalLM

import codevqa
from codevqa.models.base import GenerationRequest
from codevqa.models.causal_lm.transformers_lm import TransformersLM
from codevqa.prompts import load as load_prompts

SHOTS = 12


def weights(folder: Path) -> Path:
    """Writes random weights of the sizes of Qwen2.5-Coder-1.5B, and a tokenizer, into a folder; returns it."""
    sizes = {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12}
    config = Qwen2Config(
        **sizes, num_key_value_heads=2, vocab_size=151_936, tie_word_embeddings=True, eos_token_id=None
    )
    with torch.device("cuda"):
        Qwen2ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    for path in (Path(codevqa.__file__).parent / "mini/weights/lm").glob("token*"):
        shutil.copy(path, folder)
    return folder


def requests(count: int, tokens: int) -> list[GenerationRequest]:
    """Returns prompts of a preamble, examples and a question."""
    prompts, rng = load_prompts("nlvr2"), random.Random(tokens)
    examples = [f"# {one.question}\n{one.program}\n" for one in prompts.examples]
    heads = ["".join(rng.sample(examples, min(SHOTS, len(examples)))) for _ in range(count // 5)]
    head = prompts.preamble
    return [GenerationRequest(f"{head}{heads[n // 5]}# Question {n}\n", tokens, (), len(head)) for n in range(count)]


def continuous(model: TransformersLM) -> Any:
    """Returns what transformers' continuous batching makes of requests, as a function of them."""
    ends = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    config = ContinuousBatchingConfig(max_memory_percent=0.5, use_cuda_graph=True)
    manager = model.model.init_continuous_batching(generation_config=ends, continuous_batching_config=config)
    manager.warmup()
    manager.start()

    def made(asked: list[GenerationRequest]) -> None:
        for one in asked:
            manager.add_request(model.tokenizer.encode(str(one.prompt)), max_new_tokens=one.max_tokens)
        for _ in asked:
            while (result := manager.get_result(timeout=1)) is None:
                if manager.background_thread_status.fatal_error is not None:
                    raise RuntimeError(str(manager.background_thread_status.fatal_error))
            if result.error is not None:
                raise RuntimeError(result.error)

    return made


def main() -> None:
    """Measures one way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=["slots", "continuous", "generate"])
    parser.add_argument("folder", nargs="?", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = options.folder or weights(Path(place))
        model = TransformersLM.from_pretrained(folder, device="cuda", loop=options.way != "generate")
        run = continuous(model) if options.way == "continuous" else model.generate
        run(requests(16, 8))
        for _ in range(2):
            for count, tokens in ((150, 64), (750, 8)):
                start = time.perf_counter()
                run(requests(count, tokens))
                torch.cuda.synchronize()
                took = time.perf_counter() - start
                print(f"{options.way}: {count} texts of {tokens} tokens in {took:.2f} s", flush=True)


if __name__ == "__main__":
    main()
