"""Measures the mini language model: are its programs right, does it read captions right?

    python -m training.evaluate_language codevqa/mini/weights/lm --retriever codevqa/mini/weights/retriever

Programs count as exact when they equal the true program, and as right also when they answer as it does on many
variations of the scenes. Each is asked for with the examples that the retriever picks from the bank. Reading is
measured where captions tell the answer, and apart from that where they leave it open. Every share comes with its 95 %
interval (Wilson) and the number of questions.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from codevqa.eval.statistics import proportion
from codevqa.miniworld.questions import Item
from codevqa.miniworld.questions_set import sample_set
from codevqa.miniworld.sampling import sample_question
from codevqa.miniworld.world import Scene
from codevqa.primitives.pnpvqa import render_reading
from codevqa.prompts import Example, load
from codevqa.writing.prompt_forms import extract_program, opening_line, render_completion

from .language_data import (
    Question,
    bank,
    distinct,
    draw_item,
    draw_spatial,
    elementary,
    load_questions,
    preamble,
    told,
)
from .language_equal import TrueWorld, same_answers
from .language_facts import Fact, facts_of, missing, telling
from .language_words import general, misspell, new_words, renamed

Log = Callable[[str], None]
Select = Callable[[str, str, int], list[Example]]


@dataclass(frozen=True)
class Asked:
    """A question whose program is asked for."""

    item: Item
    scenes: Sequence[Scene] = ()
    undo: Mapping[str, str] = field(default_factory=dict)
    """Words it has in the place of known ones, with those."""


def _drawn(rng: random.Random, form: str, **choice: Any) -> Asked:
    scenes, item = draw_item(rng, form, **choice)
    return Asked(item, scenes)


def _made_up(rng: random.Random, form: str) -> Asked:
    scenes, item = draw_item(rng, form)
    words = new_words(rng, item, nouns=1.0, adjectives=0.3)
    return Asked(renamed(item, words), scenes, {new: old for old, new in words.items()})


def _misspelt(rng: random.Random, form: str) -> Asked:
    while True:
        scenes, item = draw_item(rng, "set")
        if scenes[0].style == "box":
            return Asked(misspell(rng, item), scenes)


def _of(*families: str) -> Callable[[random.Random, str], Asked]:
    def draw(rng: random.Random, form: str) -> Asked:
        while True:
            scenes = sample_set(rng, style="box")
            try:
                item = sample_question(rng, scenes, rng.choice(families))
            except LookupError:
                continue
            if not item.wording.endswith("~"):
                return Asked(item, scenes)

    return draw


SORTS: dict[str, Callable[[random.Random, str], Asked]] = {
    "seen wording": _drawn,
    "unseen wording": lambda rng, form: _drawn(rng, form, unseen=True),
    "new color-kind pairs": lambda rng, form: _drawn(rng, form, split="test"),
    "made-up nouns": _made_up,
    "no known family": lambda rng, form: Asked(general(rng, form)),
    "two conditions": _of("joined"),
    "only": _of("only"),
    "misspelt statements": _misspelt,
}


def shown(right: Sequence[bool]) -> str:
    """A share with its interval, for the log."""
    return str(proportion(right)) if right else "none"


def figure(right: Sequence[bool]) -> dict[str, float]:
    """A share with its interval, for the file."""
    return asdict(proportion(right)) if right else {}


def selector(folder: Path | None) -> Select:
    """Picks examples as the pipeline does; without a retriever at random."""
    if folder is None or not folder.is_dir():
        rng = random.Random(0)
        return lambda question, form, count: rng.sample(list(bank(form)), count)
    from codevqa.models.retrieval import ExampleIndex, SentenceRetriever

    retriever = SentenceRetriever.from_pretrained(folder)
    indexes = {form: ExampleIndex(retriever, [one.question for one in bank(form)]) for form in ("image", "set")}
    return lambda question, form, count: [bank(form)[place] for place in indexes[form].nearest(question, count)]


@torch.no_grad()
def complete(model: Any, tokenizer: Any, prompts: Sequence[str], tokens: int) -> list[str]:
    """Continues prompts greedily."""
    batch = 400 if model.device.type == "cuda" else 100
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
    """Exact and right programs of each sort of question, with the first wrong ones shown."""
    figures: dict[str, Any] = {}
    for sort, draw in SORTS.items():
        rng = random.Random(f"programs {sort}")
        several = [draw(rng, rng.choice(("image", "set"))) for _ in range(count)]
        prompts = [
            render_completion(preamble(), select(one.item.question, one.item.form, 6), one.item.question, one.item.form)
            for one in several
        ]
        programs = list(map(extract_program, complete(model, tokenizer, prompts, 200)))
        exact, right = _judged(several, programs, sort, log)
        figures[sort] = {"exact": figure(exact), "right": figure(right)}
        families: dict[str, list[bool]] = defaultdict(list)
        for one, good in zip(several, right, strict=True):
            families[f"{one.item.form} {one.item.type}"].append(good)
        weak = {name: round(sum(one) / len(one), 2) for name, one in families.items() if sum(one) < 0.9 * len(one)}
        log(f"programs, {sort}: exact {shown(exact)}; exact or same answers {shown(right)}; weak: {weak}")
    return figures


def _judged(several: Sequence[Asked], programs: Sequence[str], sort: str, log: Log) -> tuple[list[bool], list[bool]]:
    """Says of each program whether it is the true one, and whether it answers alike."""
    exact: list[bool] = []
    right: list[bool] = []
    with TrueWorld() as world:
        for one, program in zip(several, programs, strict=True):
            exact.append(program == f"{opening_line(one.item.form, 7)}\n{one.item.program}")
            right.append(
                exact[-1] or (bool(one.scenes) and same_answers(world, program, one.item, one.scenes, one.undo))
            )
            if not right[-1] and right.count(False) <= 4:
                log(f"  {sort}: {one.item.question}\n    wanted {one.item.program!r}\n    wrote  {program!r}")
    return exact, right


@dataclass(frozen=True)
class Read:
    """A question to be read with captions of each scene."""

    text: str
    answer: str
    form: str
    family: str
    captions: list[list[str]]
    allowed: tuple[str, ...] = ()
    """The answers to choose from, where there are two."""


def reading_question(rng: random.Random, sort: str) -> tuple[Read, list[Scene], list[Fact]]:
    """A question of one sort, without captions yet, its scenes, and the facts it rests on."""
    if sort == "query":
        scene, question, answer = elementary(rng)
        return Read(question, answer, "image", " ".join(question.split()[:2]), []), [scene], [Fact(0, question)]
    scenes, item = draw_spatial(rng) if sort == "spatial" else draw_item(rng, sort)
    read = Read(item.question, item.answer, item.form, item.type, [], options(item.program))
    return read, scenes, facts_of(item.program, scenes, item.form)


def reading_questions(sort: str, count: int) -> dict[str, list[Read]]:
    """Questions with true captions that tell the answer, and with true captions as they come, told or left open."""
    found: dict[str, list[Read]] = {"captions that tell": [], "as they come, telling": [], "as they come, open": []}
    rng = random.Random(f"reading {sort}")
    for _ in range(count * 2):
        asked, scenes, facts = reading_question(rng, sort)
        drawn = [told(rng, scene, asked.text, noise=0.0) for scene in scenes]
        enough = telling(rng, facts, scenes, [one[:4] for one in drawn])
        if enough:
            found["captions that tell"].append(replace(asked, captions=enough))
        key = "as they come, open" if missing(facts, scenes, drawn) else "as they come, telling"
        found[key].append(replace(asked, captions=drawn))
    return found


def options(program: str) -> tuple[str, ...]:
    """The two answers that a program chooses between; empty where it may give any color, kind, size or number."""
    choice = re.search(r'^answer = "([^"]*)" if .* else "([^"]*)"$', program, re.MULTILINE)
    return choice.groups() if choice else ()


def read_answers(model: Any, tokenizer: Any, questions: Sequence[Read], shots: int = 0) -> list[str]:
    """What the model reads."""
    rng = random.Random(0)
    shelf = load("mini").reading
    prompts = [
        render_reading(
            rng.sample([one for one in shelf if one.form == asked.form], shots),
            asked.captions,
            asked.text,
            asked.form,  # type: ignore[arg-type]
        )
        for asked in questions
    ]
    return [text.split("\n")[0].strip() for text in complete(model, tokenizer, prompts, 8)]


def _by_family(names: Sequence[str], right: Sequence[bool], least: int = 6) -> str:
    families: dict[str, list[bool]] = defaultdict(list)
    for name, one in zip(names, right, strict=True):
        families[name].append(one)
    return str({name: f"{sum(one) / len(one):.2f}/{len(one)}" for name, one in families.items() if len(one) >= least})


def measure_reading(model: Any, tokenizer: Any, count: int, log: Log) -> dict[str, Any]:
    """Right answers from true captions by sort of question, where they tell the answer and where they leave it open."""
    figures: dict[str, Any] = {}
    for sort in ("query", "image", "set", "spatial"):
        for name, questions in reading_questions(sort, count).items():
            if not questions:
                continue
            read = read_answers(model, tokenizer, questions)
            right = [one.answer == text for one, text in zip(questions, read, strict=True)]
            figures[f"{sort}, {name}"] = figure(right)
            log(f"reading, {sort}, {name}: {shown(right)} {_by_family([one.family for one in questions], right)}")
            if name == "captions that tell":
                wrong = [pair for pair in zip(questions, read, strict=True) if pair[0].answer != pair[1]]
                for one, text in wrong[:4]:
                    log(f"  {one.text} wanted {one.answer!r}, read {text!r} in {one.captions}")
            elif sort == "spatial":
                valid = [text in one.allowed for one, text in zip(questions, read, strict=True)]
                figures[f"{sort}, {name}, an answer that the question allows"] = figure(valid)
                log(f"  an answer that the question allows: {shown(valid)}")
    return figures


def measure_captioned(model: Any, tokenizer: Any, held: Sequence[Question], log: Log) -> dict[str, Any]:
    """Right answers from the trained captioner's captions, by number of captions and examples."""
    figures: dict[str, Any] = {}
    for form in ("image", "set"):
        part = [one for one in held if one.form == form][:600]
        for captions, draws, shots in ((7, 12, 0), (7, 12, 1), (5, 7, 0), (10, 12, 0)):
            questions = [
                Read(one.text, one.answer, form, "", [distinct(drawn[:draws], captions) for drawn in one.told])
                for one in part
            ]
            read = read_answers(model, tokenizer, questions, shots)
            right = [one.answer == text for one, text in zip(questions, read, strict=True)]
            name = f"{form}, {captions} of {draws} captions, {shots} shots"
            figures[name] = figure(right)
            starts = [" ".join(one.text.lower().split()[:2]) for one in part]
            detail = f" {_by_family(starts, right, 10)}" if (captions, shots) == (7, 0) else ""
            log(f"captioner's captions, {name}: {shown(right)}{detail}")
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
    parser.add_argument("--questions", type=int, default=100, help="of each sort; reading takes twice as many")
    parser.add_argument(
        "--captions", type=Path, help="what training.language_captions wrote, of a seed never trained on"
    )
    parser.add_argument("--json", type=Path, help="writes the figures here, too")
    parser.add_argument("--retriever", type=Path)
    options = parser.parse_args()
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(options.folder)
    model = LlamaForCausalLM.from_pretrained(options.folder, dtype=torch.float32)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    held = load_questions(options.captions) if options.captions else []
    figures = evaluate(
        model, tokenizer, options.questions, lambda text: print(text, flush=True), options.retriever, held
    )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
