"""Trains the mini language model: it writes programs and reads captions.

    python -m codevqa.mini.training.language --out one --seconds 374 --rate 1.5e-3  # on a GPU
    python -m codevqa.mini.training.language --start one --out two --captions captions.jsonl --rate 1e-3
    python -m codevqa.mini.training.language --out weights --smoke  # a minute on a CPU, to see that it runs

Texts are drawn without end by worker processes, packed into rows and masked so that each text sees only itself. The
loss counts programs and answers only.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from . import language_tokenizer
from .language_data import ExamplePool, Piece, sample_program
from .language_reading import ReadingPool, ReadingQuestion, load_questions

ANSWER_WEIGHT = 10.0
"""Loss weight of a token of an answer; one of a program counts 1. A text has few of the former."""
PROGRAMS = 0.35
"""Share of the texts that are programs."""
ROWS, LENGTH, WORKERS = 42, 1536, 14
"""Of a batch rows and their tokens; processes that draw."""
WARM = 0.03
"""Share of the time in which the rate grows."""


class Texts(IterableDataset[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]):
    """Rows of packed texts, drawn without end.

    Args:
        folder: The tokenizer's.
        rows: Rows a batch.
        length: Tokens a row.
        seed: Every worker of every seed draws texts of its own.
        pool: Questions that a worker draws beforehand.
    """

    def __init__(self, folder: Path, rows: int, length: int, seed: int, *, pool: int = 4000) -> None:
        self.folder, self.rows, self.length, self.seed, self.pool = folder, rows, length, seed, pool
        self.real: list[ReadingQuestion] = []
        """Questions with captions of the trained captioner."""
        self.programs = PROGRAMS

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Yields tokens, text numbers (0 is padding) and loss weights, each of shape (rows, length)."""
        from transformers import PreTrainedTokenizerFast

        torch.set_num_threads(1)
        info = torch.utils.data.get_worker_info()
        rng = random.Random(f"{self.seed}/{info.id if info else 0}")
        encode = encoder(PreTrainedTokenizerFast.from_pretrained(self.folder))
        pool, readings = ExamplePool(rng, self.pool), ReadingPool(rng, self.pool // 2, self.real)
        waiting: list[tuple[list[int], list[float]]] = []
        while True:
            rows: list[tuple[list[int], list[int], list[float]]] = []
            while len(rows) < self.rows:
                while len(waiting) < 48:
                    program = rng.random() < self.programs
                    pieces = sample_program(rng, pool) if program else readings.sample(rng)
                    ids, weights = encode(pieces, 1.0 if program else ANSWER_WEIGHT)
                    if len(ids) <= self.length:
                        waiting.append((ids, weights))
                rows.append(self._row(waiting))
            ids_, texts, weights_ = zip(*rows, strict=True)
            yield torch.tensor(ids_), torch.tensor(texts, dtype=torch.int16), torch.tensor(weights_)

    def _row(self, waiting: list[tuple[list[int], list[float]]]) -> tuple[list[int], list[int], list[float]]:
        """Fills one row with texts in the order they wait, skipping those that no longer fit."""
        ids: list[int] = []
        texts: list[int] = []
        weights: list[float] = []
        place = number = 0
        while place < len(waiting):
            if len(ids) + len(waiting[place][0]) > self.length:
                place += 1
                continue
            more, weigh = waiting.pop(place)
            number += 1
            ids += more
            texts += [number] * len(more)
            weights += weigh
        short = self.length - len(ids)
        return ids + [0] * short, texts + [0] * short, weights + [0.0] * short


def encoder(tokenizer: Any) -> Callable[[list[Piece], float], tuple[list[int], list[float]]]:
    """What turns pieces into tokens, with the loss weight of each: 0 where the piece is given."""
    tokens = lru_cache(20_000)(lambda text: tokenizer.backend_tokenizer.encode(text).ids)

    def encode(pieces: list[Piece], weight: float) -> tuple[list[int], list[float]]:
        counted = [(id, weight if piece.learnt else 0.0) for piece in pieces for id in tokens(piece.text)]
        return [id for id, _ in counted], [each for _, each in counted]

    return encode


def build_model(tokenizer: Any, *, width: int = 256, layers: int = 8, heads: int = 8) -> Any:
    """A Llama of the given size with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64 * math.ceil(len(tokenizer) / 64),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=2048,
        rope_theta=10000.0,
        initializer_range=0.02,
        tie_word_embeddings=True,
        reading_shots=0,  # it learns to read without examples
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def loss_of(model: Any, ids: torch.Tensor, texts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted cross-entropy of the next token, each text seeing only itself."""
    length = ids.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
    mask = ((texts[:, :, None] == texts[:, None, :]) & causal)[:, None]
    starts = torch.cat([torch.ones_like(texts[:, :1], dtype=torch.bool), texts[:, 1:] != texts[:, :-1]], 1)
    places = torch.arange(length, device=ids.device).expand_as(ids)
    positions = places - torch.where(starts, places, 0).cummax(1).values
    logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
    targets, counted = ids[:, 1:], weights[:, 1:] * (texts[:, 1:] == texts[:, :-1])
    losses = torch.nn.functional.cross_entropy(
        logits[:, :-1].float().flatten(0, 1), targets.flatten(), reduction="none"
    )
    return (losses * counted.flatten()).sum() / counted.sum().clamp(min=1)


def rate(share: float, peak: float) -> float:
    """Learning rate after a share of the time: a warm-up, then a cosine down to a fiftieth."""
    if share < WARM:
        return peak * share / WARM
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, (share - WARM) / (1 - WARM)))))


def train_language(model: Any, texts: Texts, *, seconds: float, peak: float, steps: int, workers: int) -> None:
    """Trains until the time or the steps are over."""
    device = next(model.parameters()).device
    cuda = device.type == "cuda"
    loader = DataLoader(
        texts, batch_size=None, num_workers=workers, prefetch_factor=6 if workers else None, pin_memory=cuda
    )
    decayed = [weight for weight in model.parameters() if weight.ndim > 1]
    others = [weight for weight in model.parameters() if weight.ndim < 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.98), fused=cuda)
    step_loss = torch.compile(loss_of, dynamic=False) if cuda else loss_of
    model.train()
    batches = iter(loader)
    first = next(batches)
    begun = time.monotonic()
    sums, seen = torch.zeros((), device=device), 0
    for step in range(steps):
        batch = first if step == 0 else next(batches)
        ids, numbers, weights = (part.to(device, non_blocking=True) for part in batch)
        with torch.autocast(device.type, torch.bfloat16):
            loss = step_loss(model, ids, numbers, weights)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step == 1:
            begun = time.monotonic()  # the first step compiles
        share = max(step / steps, (time.monotonic() - begun) / seconds)
        for group in optimizer.param_groups:
            group["lr"] = rate(share, peak)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        sums, seen = sums + loss.detach(), seen + 1
        if step % 200 == 199 or step == steps - 1 or share >= 1:
            spent = time.monotonic() - begun
            speed = ids.numel() * step / max(spent, 1e-9) / 1e3
            print(f"step {step + 1} loss {float(sums) / seen:.4f} {speed:.0f}k tokens/s", flush=True)
            sums, seen = torch.zeros((), device=device), 0
        if share >= 1:
            break
    model.eval()


def save_language_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Writes the model in fp16 and its tokenizer."""
    half = type(model)(model.config).half()
    half.load_state_dict({name: value.half().cpu() for name, value in model.state_dict().items()})
    half.generation_config.eos_token_id = tokenizer.eos_token_id
    half.generation_config.pad_token_id = tokenizer.pad_token_id
    half.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    """Trains from nothing or from a folder, and saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, nargs="+", help="continue from these weights, or the mean of several")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", type=float, default=PROGRAMS, help="share of the texts that are programs")
    parser.add_argument("--rows", type=int, default=ROWS, help="of a batch; fewer on a CPU")
    parser.add_argument("--captions", type=Path, help="what codevqa.mini.training.language_captions wrote")
    parser.add_argument("--smoke", action="store_true", help="tiny, a minute on a CPU")
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    smoke = options.smoke
    device = torch.device("cuda" if torch.cuda.is_available() and not smoke else "cpu")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.suppress_errors = True  # slower is better than nothing

    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    if options.start:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(options.start[0])
        models = [
            LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
            for folder in options.start
        ]
        model, states = models[0], [model.state_dict() for model in models]
        model.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    else:
        tokenizer = language_tokenizer.build_language_tokenizer(questions=150 if smoke else 3000)
        model = build_model(tokenizer, width=64, layers=2, heads=4) if smoke else build_model(tokenizer)
    tokenizer.save_pretrained(options.out)
    print(f"{model.num_parameters() / 1e6:.2f}M weights, {len(tokenizer)} tokens", flush=True)
    if smoke:
        texts, steps, workers = Texts(options.out, 2, LENGTH, options.seed, pool=30), 4, 0
    else:
        texts, steps, workers = (
            Texts(options.out, options.rows, LENGTH, options.seed),
            10**6,
            min(WORKERS, os.cpu_count() or 1),
        )
    texts.programs = options.programs
    if options.captions:
        texts.real = load_questions(options.captions)
    if options.seconds:
        train_language(
            model.to(device), texts, seconds=options.seconds, peak=options.rate, steps=steps, workers=workers
        )
    save_language_model(model, tokenizer, options.out)


if __name__ == "__main__":
    main()
