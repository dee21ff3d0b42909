"""Trains the mini retrieval embedding: questions whose programs have the same shape lie near each other.

    python -m codevqa.mini.training.retriever --tokenizer mini/weights/lm --out mini/weights/retriever

A static embedding (one vector a token, averaged) over the language model's tokenizer. Nouns and colors are exchanged
freely while it trains, so they come to count for little and the wording for much. A minute on one CPU core.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from codevqa.mini.questions import SceneQuestion

from .language_data import draw_item
from .language_words import general, rename, reword

WIDTH, BATCH, STEPS, QUESTIONS = 96, 192, 1500, 16_000


def question_shape(item: SceneQuestion) -> str:
    """What a program is but for its words: texts and numbers blanked, kinds of query kept apart."""
    asked = re.findall(r'query\([^"]*"((?:How many|What color|What size|What is|Is there|Are all)?)', item.program)
    touch = " touch" if "touch" in item.program else ""
    tower = " tower" if "tower" in item.program or "block above" in item.program else ""
    return re.sub(r'"[^"]*"|\b\d+\b', "_", item.program) + "|".join(asked) + touch + tower


def draw_by_shape(rng: random.Random, count: int) -> dict[str, list[str]]:
    """Questions by shape of program."""
    by_shape: dict[str, list[str]] = defaultdict(list)
    for _ in range(count):
        form = rng.choice(("image", "set"))
        item = general(rng, form) if rng.random() < 0.04 else draw_item(rng, form)[1]
        if rng.random() < 0.5:
            item = rename(rng, item)
        if rng.random() < 0.3 and item.type != "general":
            item = reword(rng, item)
        key = f"{form} general" if item.type == "general" else f"{form} {question_shape(item)}"
        by_shape[key].append(item.question)
    return {key: questions for key, questions in by_shape.items() if len(questions) > 3}


def build_retriever(tokenizer: Any) -> Any:
    """The model with random vectors."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    module = StaticEmbedding(tokenizer.backend_tokenizer, embedding_dim=WIDTH)
    return SentenceTransformer(modules=[module, Normalize()], device="cpu")


def train_retriever(model: Any, questions: dict[str, list[str]]) -> float:
    """Contrastive training over pairs of one shape, other shapes being negatives; returns the last loss."""
    rng = random.Random(2)
    module = model[0]
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    keys = list(questions)
    weights = [len(questions[key]) ** 0.5 for key in keys]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    mean = 0.0
    for step in range(STEPS):
        picked = rng.choices(keys, weights, k=BATCH)
        texts = [rng.choice(questions[key]) for key in picked] + [rng.choice(questions[key]) for key in picked]
        embedded = torch.nn.functional.normalize(module(module.preprocess(texts))["sentence_embedding"], dim=-1)
        scores = embedded[:BATCH] @ embedded[BATCH:].T / 0.07
        same = torch.tensor([[key == other for other in picked] for key in picked])
        # Any question of the same shape is as good as the one drawn.
        log_share = scores.log_softmax(1).masked_fill(~same, -1e9).logsumexp(1)
        loss = -log_share.mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        mean = loss.item() if step == 0 else 0.98 * mean + 0.02 * loss.item()
    return mean


def main() -> None:
    """Trains and saves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of the language model")
    options = parser.parse_args()
    from transformers import PreTrainedTokenizerFast

    torch.manual_seed(0)
    model = build_retriever(PreTrainedTokenizerFast.from_pretrained(options.tokenizer))
    questions = draw_by_shape(random.Random(1), QUESTIONS)
    loss = train_retriever(model, questions)
    print(f"{len(questions)} shapes, loss {loss:.3f}", flush=True)
    model.save_pretrained(str(options.out), create_model_card=False)


if __name__ == "__main__":
    main()
