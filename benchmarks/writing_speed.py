"""Program writing: our decoding loop against plain batched ``generate``, as a ratio in one run.

    python -m benchmarks.writing_speed
    python -m benchmarks.writing_speed --tiny --device cpu --prompts 8 --plain 2,4

Real 12-shot prompts of the set ``gqa``, random weights of the sizes of a 0.5B-class model (Qwen2's: width 896, 24
layers, 14 heads over 2, 151,936 tokens). Random weights do not write programs, so each completion gets as its limit the
length that a program of the set would have, three characters a token. Plain generate is ``model.generate`` on
left-padded batches without reuse of prefixes, each batch ending with its longest row.

Random weights make near-ties between tokens, which rounding decides. So outputs are compared twice: in float32, where
they have to be equal, and in the dtype measured, where plain generate in batches of one size is compared with itself in
batches of another size, too.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from codevqa.core.settings import WriterSettings
from codevqa.models.base import Completion, GenerationRequest
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.cuda_graphs import enabled
from codevqa.prompts import load
from codevqa.writing.writer import Writer

CHARACTERS = 3
"""Characters of a program that a token of a real tokenizer stands for."""


def requests(count: int, seed: int = 0) -> list[GenerationRequest]:
    """Returns 12-shot prompts with examples drawn at random, which share no more than the preamble, and lengths."""
    prompts = load("gqa")
    draw = random.Random(seed)
    made = []
    for number in range(count):
        writer = Writer(None, prompts, settings=WriterSettings(selection="random"), seed=number)  # type: ignore[arg-type]
        example = draw.choice(prompts.examples)
        request, _ = writer.request(example.question, "image")
        length = (len('\nimg = open_image("Image13.jpg")\n') + len(example.program)) // CHARACTERS
        made.append(GenerationRequest(request.prompt, min(max(length, 16), 96), request.stop, request.shared))
    return made


def tokenizer(texts: Sequence[str], pieces: int, vocabulary: int) -> Any:
    """Trains a byte-level BPE of ``pieces`` entries, and fills its vocabulary up with words that no text has."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=pieces,
        special_tokens=["<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    model = json.loads(trained.to_str())["model"]
    words = dict(model["vocab"])
    words.update({f"\u0120w{number}": number for number in range(len(words), vocabulary)})
    whole = Tokenizer(models.BPE(vocab=words, merges=[tuple(merge) for merge in model["merges"]]))
    whole.pre_tokenizer = trained.pre_tokenizer
    whole.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="<pad>", model_max_length=10**9)


def network(tiny: bool, device: str, dtype: torch.dtype, seed: int = 0) -> Any:
    """Returns the model, random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 896, "num_hidden_layers": 24, "intermediate_size": 4864, "vocab_size": 151_936}
    heads = {"num_attention_heads": 14, "num_key_value_heads": 2}
    if tiny:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 1000}
        heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = Qwen2Config(
        **sizes,
        **heads,
        max_position_embeddings=32_768,
        # Wider than usual, so that outputs depend on the prompts and fewer tokens tie.
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(seed)
    with torch.device(device):
        return Qwen2ForCausalLM(config).to(dtype).eval()


def timed(lm: TransformersLM, asked: Sequence[GenerationRequest]) -> tuple[list[Completion], float]:
    """Returns completions and seconds; a completion comes as text, so nothing is under way afterwards."""
    began = time.perf_counter()
    completions = lm.generate(asked)
    return completions, time.perf_counter() - began


def alike(left: Sequence[Completion], right: Sequence[Completion]) -> dict[str, object]:
    """Returns how many completions are the same, and how much of the texts is before they part."""
    pairs = [(a.text, b.text) for a, b in zip(left, right, strict=False)]
    parted = [next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a)) for a, b in pairs]
    same = sum(a == b for a, b in pairs)
    before = sum(parted) / max(1, sum(len(a) for a, _ in pairs))
    return {"equal": f"{same} of {len(pairs)}", "text before the first difference": round(before, 3)}


def slots(lm: TransformersLM) -> dict[str, Any]:
    """Returns how many texts were decoded at once, and whether that was recorded; empty where there are no slots."""
    memory = getattr(lm._loop, "memory", None)
    if memory is None:
        return {}
    return {"recorded": memory.recordable, "slots": memory.count}


def main() -> None:
    """Runs the benchmark and prints one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--plain", default="16,64", help="batch sizes of plain generate")
    parser.add_argument("--plain-prompts", type=int, default=128, help="prompts that plain generate gets, at most")
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--pieces", type=int, default=290, help="entries of the tokenizer: more make shorter prompts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--tiny", action="store_true")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    name = torch.cuda.get_device_name() if cuda else "CPU"
    asked = requests(options.prompts)
    model = network(options.tiny, options.device, getattr(torch, options.dtype))
    reader = tokenizer([str(request.prompt) for request in asked[:64]], options.pieces, model.config.vocab_size)

    def log(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def language_model(batch: int, given: Any = model, loop: bool = True) -> TransformersLM:
        return TransformersLM(given, reader, name="random", max_batch=batch, loop=loop)

    ours = language_model(options.slots)
    if not ours.own_loop:
        parser.error("the loop does not take this model")
    result: dict[str, Any] = {"device": name, "torch": torch.__version__, "dtype": options.dtype}
    result["CUDA graphs"] = enabled(torch.device(options.device))
    _, first = timed(ours, asked)
    log(f"ours, first: {first:.2f} s")
    before = (ours.stats.steps, ours.stats.prefills, ours.stats.prefilled_tokens)
    made, seconds = timed(ours, asked)
    log(f"ours: {seconds:.2f} s")
    after = (ours.stats.steps, ours.stats.prefills, ours.stats.prefilled_tokens)
    counts = [new - old for new, old in zip(after, before, strict=True)]
    _, prompts_only = timed(ours, [GenerationRequest(r.prompt, 1, (), r.shared) for r in asked])
    began = time.perf_counter()
    lengths = [len(reader(str(request.prompt))["input_ids"]) for request in asked]
    tokenised = time.perf_counter() - began
    result["prompts"] = {
        "count": len(asked),
        "tokens a prompt": round(sum(lengths) / len(asked)),
        "tokens a completion": round(sum(c.completion_tokens for c in made) / len(made), 1),
        "different completions": len({completion.text for completion in made}),
    }
    result["ours"] = {
        "completions a second": round(len(asked) / seconds, 2),
        "seconds": round(seconds, 3),
        "seconds, first time (recording)": round(first, 3),
        "seconds for one token each (prompts only)": round(prompts_only, 3),
        "of which tokenizer": round(tokenised, 3),
        "steps, prefills, prompt tokens": counts,
        "milliseconds a step": round(1000 * (seconds - prompts_only) / counts[0], 2),
        **slots(ours),
    }
    log(json.dumps(result))
    plain: dict[int, list[Completion]] = {}
    result["plain generate"] = {}
    # Prompts without a marked prefix: nothing is shared.
    bare = [GenerationRequest(r.prompt, r.max_tokens, r.stop) for r in asked[: options.plain_prompts]]
    for batch in map(int, options.plain.split(",")):
        lm = language_model(batch, loop=False)
        part = bare[: max(batch, min(len(bare), 4 * batch))]
        if cuda:
            timed(lm, [GenerationRequest(r.prompt, 2) for r in part[:batch]])
        plain[batch], spent = timed(lm, part)
        log(f"plain {batch}: {spent:.2f} s for {len(part)}")
        result["plain generate"][str(batch)] = {
            "completions a second": round(len(part) / spent, 2),
            "ours is faster by": round(len(asked) / seconds / (len(part) / spent), 2),
            f"ours in {options.dtype}": alike(plain[batch], made),
        }
        log(json.dumps(result["plain generate"]))
    sizes = sorted(plain)
    if len(sizes) > 1:
        result["plain generate"][f"{sizes[0]} and {sizes[-1]}"] = alike(plain[sizes[0]], plain[sizes[-1]])
    del ours, lm
    exact = model.to(torch.float32)
    few = [GenerationRequest(r.prompt, min(24, r.max_tokens), r.stop, r.shared) for r in asked[:8]]
    looped, _ = timed(language_model(4, exact), few)
    single, _ = timed(language_model(1, exact, loop=False), [GenerationRequest(r.prompt, r.max_tokens) for r in few])
    result["float32, against one prompt at a time"] = alike(single, looped)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
