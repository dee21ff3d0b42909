"""Measures the mini language model: are its programs right, does it read captions right?

    python -m training.evaluate_language codevqa/mini/weights/lm --questions 200

Programs count as right when they equal the true program. Each is asked for with the examples that the retriever picks
from the bank. Reading is measured by family of question, from true captions and from captions one in ten of which is
false.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from codevqa.mini.questions import Item
from codevqa.pnpvqa import render_reading
from codevqa.prompts import Example, load
from codevqa.writer import extract_program, opening_line, render_completion

from .language_data import Question, bank, distinct, draw_item, elementary, preamble, told
from .language_words import general, rename

Log = Callable[[str], None]
Select = Callable[[str, str, int], list[Example]]

SORTS: dict[str, Callable[[random.Random, str], Item]] = {
    "seen wording": lambda rng, form: draw_item(rng, form)[1],
    "unseen wording": lambda rng, form: draw_item(rng, form, unseen=True)[1],
    "new color-kind pairs": lambda rng, form: draw_item(rng, form, split="test")[1],
    "made-up nouns": lambda rng, form: rename(rng, draw_item(rng, form)[1], nouns=1.0, adjectives=0.3),
    "no known family": lambda rng, form: general(rng, form),
}


def selector(folder: Path | None) -> Select:
    """Picks examples as the pipeline does; without a retriever at random."""
    if folder is None or not folder.is_dir():
        rng = random.Random(0)
        return lambda question, form, count: rng.sample(list(bank(form)), count)
    from codevqa.retrieval import ExampleIndex, SentenceRetriever

    retriever = SentenceRetriever.from_pretrained(folder)
    indexes = {form: ExampleIndex(retriever, [one.question for one in bank(form)]) for form in ("image", "set")}
    return lambda question, form, count: [bank(form)[place] for place in indexes[form].nearest(question, count)]


@torch.no_grad()
def complete(model: Any, tokenizer: Any, prompts: Sequence[str], tokens: int, batch: int = 100) -> list[str]:
    """Continues prompts greedily."""
    found: list[str] = []
    tokenizer.padding_side = "left"
    for start in range(0, len(prompts), batch):
        part = tokenizer(list(prompts[start : start + batch]), return_tensors="pt", padding=True)
        part = {name: part[name].to(model.device) for name in ("input_ids", "attention_mask")}
        with torch.autocast(model.device.type, torch.bfloat16, enabled=model.device.type == "cuda"):
            out = model.generate(
                **part,
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
            )
        found += tokenizer.batch_decode(out[:, part["input_ids"].shape[1] :], skip_special_tokens=True)
    return found


def measure_programs(model: Any, tokenizer: Any, select: Select, count: int, log: Log) -> dict[str, Any]:
    """Exact programs of each sort of question, with the first wrong ones shown."""
    figures: dict[str, Any] = {}
    for sort, draw in SORTS.items():
        rng = random.Random(f"programs {sort}")
        items = [draw(rng, rng.choice(("image", "set"))) for _ in range(count)]
        prompts = [
            render_completion(preamble(), select(item.question, item.form, 6), item.question, item.form)
            for item in items
        ]
        written = complete(model, tokenizer, prompts, 140)
        families: dict[str, list[bool]] = defaultdict(list)
        shown = 0
        for item, text in zip(items, written, strict=True):
            program = extract_program(text)
            right = program == f"{opening_line(item.form, 7)}\n{item.program}"
            families[f"{item.form} {item.type}"].append(right)
            if not right and shown < 4:
                shown += 1
                log(f"  {sort}: {item.question}\n    wanted {item.program!r}\n    wrote  {program!r}")
        flat = [right for rights in families.values() for right in rights]
        figures[sort] = sum(flat) / len(flat)
        weak = {name: round(sum(one) / len(one), 2) for name, one in families.items() if sum(one) < 0.9 * len(one)}
        log(f"programs, {sort}: {figures[sort]:.3f} of {len(flat)}; weak: {weak}")
    return figures


def measure_reading(model: Any, tokenizer: Any, count: int, log: Log) -> dict[str, Any]:
    """Right answers by number of examples shown and by family of question."""
    figures: dict[str, Any] = {}
    shelf = load("mini").reading
    for form in ("query", "image", "set"):
        for noise, shots in ((0.0, 0), (0.0, 1), (0.0, 2), (0.1, 1)):
            rng = random.Random(f"reading {form}")
            prompts, answers, names = [], [], []
            for _ in range(count * 2):
                if form == "query":
                    scene, question, answer = elementary(rng)
                    scenes, name = [scene], " ".join(question.split()[:2])
                else:
                    scenes, item = draw_item(rng, form)
                    question, answer, name = item.question, item.answer, item.type
                kind = "set" if form == "set" else "image"
                examples = rng.sample([one for one in shelf if one.form == kind], shots)
                contexts = [told(random.Random(f"{question}"), one, question, noise=noise) for one in scenes]
                prompts.append(render_reading(examples, contexts, question, kind))  # type: ignore[arg-type]
                answers.append(answer)
                names.append(name)
            read = [text.split("\n")[0].strip() for text in complete(model, tokenizer, prompts, 6)]
            right = [one == other for one, other in zip(read, answers, strict=True)]
            figures[f"{form}, noise {noise}, {shots} shots"] = sum(right) / len(right)
            families: dict[str, list[bool]] = defaultdict(list)
            for name, one in zip(names, right, strict=True):
                families[name].append(one)
            shown = {name: f"{sum(one) / len(one):.2f}/{len(one)}" for name, one in families.items() if len(one) > 5}
            detail = f" {shown}" if shots == 1 else ""
            log(f"reading, {form}, noise {noise}, {shots} shots: {sum(right) / len(right):.3f}{detail}")
    return figures


def measure_captioned(model: Any, tokenizer: Any, held: Sequence[Question], log: Log) -> dict[str, Any]:
    """Right answers from the trained captioner's captions, by number of captions and examples."""
    figures: dict[str, Any] = {}
    shelf = load("mini").reading
    for form in ("image", "set"):
        part = [one for one in held if one.form == form][:400]
        for captions, draws, shots in ((7, 12, 0), (7, 12, 1), (7, 7, 0), (5, 7, 0), (5, 12, 0), (3, 4, 0)):
            rng = random.Random(0)
            prompts = [
                render_reading(
                    rng.sample([one for one in shelf if one.form == form], shots),
                    [distinct(drawn[:draws], captions) for drawn in one.told],
                    one.text,
                    one.form,  # type: ignore[arg-type]
                )
                for one in part
            ]
            read = [text.split("\n")[0].strip() for text in complete(model, tokenizer, prompts, 6)]
            families: dict[str, list[bool]] = defaultdict(list)
            for one, text in zip(part, read, strict=True):
                families[" ".join(one.text.lower().split()[:2])].append(text == one.answer)
            flat = [right for rights in families.values() for right in rights]
            name = f"{form}, {captions} of {draws} captions, {shots} shots"
            figures[name] = sum(flat) / max(1, len(flat))
            shown = {name: f"{sum(one) / len(one):.2f}/{len(one)}" for name, one in families.items() if len(one) > 9}
            log(
                f"captioner's captions, {name}: {figures[name]:.3f}"
                + (f" {shown}" if (captions, shots) == (7, 1) else "")
            )
    return figures


def evaluate(
    model: Any,
    tokenizer: Any,
    questions: int,
    log: Log,
    retriever: Path | None = None,
    held: Sequence[Question] = (),
) -> dict[str, Any]:
    """All figures; ``held`` are questions with captions of the trained captioner, kept from training."""
    model.eval()
    programs = measure_programs(model, tokenizer, selector(retriever), questions, log)
    figures = {"programs": programs, "reading": measure_reading(model, tokenizer, questions, log)}
    if held:
        figures["captioned"] = measure_captioned(model, tokenizer, held, log)
    return figures


def main() -> None:
    """Measures a folder of weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--retriever", type=Path)
    options = parser.parse_args()
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.folder)
    model = LlamaForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    figures = evaluate(model, tokenizer, options.questions, lambda text: print(text, flush=True), options.retriever)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
