"""Measures the mini models on scenes that training never draws, with the engine that answers questions.

    python -m codevqa.mini.training.evaluate vision --cases 400
    python -m codevqa.mini.training.evaluate language --cases 300 [--json FILE]

Vision: half of the plain scenes show pairs of colour and kind that training leaves out; "held-out" rows are of those
pairs alone. Language: programs that equal the true one letter for letter, and answers read from true captions that tell
them. Prints each share with its number of cases and its 95 % interval (Wilson's).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import cast

import numpy as np

from codevqa import CodeVQA
from codevqa.core.images import Picture, load_picture
from codevqa.core.trace import Form
from codevqa.eval.statistics import mean
from codevqa.mini.phrases import Phrase
from codevqa.mini.questions import SceneQuestion
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import CANVAS, HELD_OUT, Scene, Thing, draw_scene
from codevqa.models.protocols import (
    Captioner,
    CaptionRequest,
    GenerationRequest,
    Matcher,
    MatchRequest,
    SimilarityRequest,
)
from codevqa.primitives.reading import render_reading
from codevqa.writing.replies import extract_program

from .captions import telling
from .language_captions import caption_patches
from .language_data import draw_item
from .language_reading import SPATIAL, draw_elementary
from .language_words import rename
from .vision_data import PROMPT
from .vision_texts import ContrastText, draw_contrast, mentions
from .vision_twins import crowd_scene, twin

DRAWS = 8
"""Captions drawn for a question."""


class ShareTable:
    """Shares as they are found."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}
        print("| what | share |\n|---|---|")

    def add(self, name: str, right: Sequence[bool]) -> None:
        """Prints a row and keeps it; one without cases is left out."""
        if right:
            share = mean([bool(value) for value in right])
            self.rows[name] = asdict(share)
            print(f"| {name} | {share} |", flush=True)


def scenes(rng: random.Random, count: int, **settings: object) -> Iterator[tuple[Scene, Picture]]:
    """Test scenes with their pictures."""
    for _ in range(count):
        scene = sample_scene(rng, split="test", **settings)  # type: ignore[arg-type]
        yield scene, load_picture(draw_scene(scene))


def held_out(thing: Thing) -> bool:
    """Whether training leaves its pair of colour and kind out."""
    return (thing.color, thing.kind) in HELD_OUT


def measure_contrast(vqa: CodeVQA, rng: random.Random, count: int, table: ShareTable) -> None:
    """ITC: which of four pictures, that differ by one change each, is the phrase true of?"""
    for style in ("plain", "box"):
        requests: list[SimilarityRequest] = []
        for scene, picture in scenes(rng, count, style=style):
            if twins := _three_twins(rng, scene):
                text = PROMPT + twins[0].text.removeprefix(PROMPT)
                shown = [picture, *(load_picture(draw_scene(other)) for other in twins[1])]
                requests += [SimilarityRequest(image, text) for image in shown]
        scores = np.array(cast(Matcher, vqa.models.matcher).similarity(requests)).reshape(-1, 4)
        table.add(f"ITC, which of four near-twins, {style}", [bool(row.argmax() == 0) for row in scores])


def _three_twins(rng: random.Random, scene: Scene) -> tuple[ContrastText, list[Scene]] | None:
    """A phrase true of the scene, and three near-twins of it, all different, of which it is false."""
    for _ in range(6):
        told_of = draw_contrast(rng, scene)
        twins = (twin(rng, scene, train=False) for _ in range(60))
        layouts = list(dict.fromkeys(other.things for other in twins if other is not None and not told_of.fits(other)))
        if len(layouts) >= 3:
            return told_of, [replace(scene, things=things) for things in layouts[:3]]
    return None


def measure_pointing(vqa: CodeVQA, rng: random.Random, count: int, table: ShareTable) -> None:
    """GradCAM: does its peak lie on the thing that a phrase names?"""
    cases: list[tuple[str, Thing, Picture]] = []
    for style in ("plain", "box"):
        for scene, picture in scenes(rng, count, style=style, min_things=3, max_things=6):
            alone = [thing for thing in scene.things if Phrase(thing.kind, thing.color).count(scene) == 1]
            if scene.tower or not alone:
                continue
            chosen = [rng.choice(alone)]
            # One more of those that training never showed, so that there are enough of them.
            chosen += [thing for thing in alone if held_out(thing) and thing is not chosen[0]][:1]
            cases += [(style, thing, picture) for thing in chosen]
    matches = cast(Matcher, vqa.models.matcher).match(
        [MatchRequest(picture, f"{target.color} {target.kind}") for _, target, picture in cases]
    )
    right: dict[str, list[bool]] = {"plain": [], "box": [], "held-out": []}
    for (style, thing, _), match in zip(cases, matches, strict=True):
        row, column = np.unravel_index(int(match.relevance.argmax()), match.relevance.shape)
        size = CANVAS / match.relevance.shape[0]
        left, top, far, bottom = thing.box
        hit = left <= (column + 1) * size and column * size <= far and top <= (row + 1) * size and row * size <= bottom
        for name in (style, "held-out") if held_out(thing) else (style,):
            right[name].append(bool(hit))
    for name, hits in right.items():
        table.add(f"pointing, {name}", hits)


def check_mentions(scene: Scene, text: str) -> list[bool]:
    """Of each thing a caption names, whether one of that kind and colour is there; "object" names none."""
    phrases = [replace(what, size=None) for what in mentions(text) if what.kind]
    return [what.count(scene) > 0 and (what.noun != "block" or bool(scene.tower)) for what in phrases]


def measure_captions(vqa: CodeVQA, rng: random.Random, count: int, table: ShareTable) -> None:
    """Captions of whole pictures, and of patches drawn for a question: are they true?"""
    for style in ("plain", "box"):
        drawn = list(scenes(rng, count, style=style))
        whole = cast(Captioner, vqa.models.captioner).caption([CaptionRequest(picture) for _, picture in drawn])
        asked = [Phrase(thing.kind, thing.color).one for scene, _ in drawn for thing in [rng.choice(scene.things)]]
        pairs = [(picture, f"is there {what}") for (_, picture), what in zip(drawn, asked, strict=True)]
        captions = {
            "whole picture, greedy": [[text] for text in whole],
            "patches for a question": caption_patches(vqa, pairs, DRAWS, rng),
        }
        for name, texts in captions.items():
            pairs_told = zip(drawn, texts, strict=True)
            there = [
                right for (scene, _), several in pairs_told for text in several for right in check_mentions(scene, text)
            ]
            table.add(f"caption, {name}, {style}: things named are there", there)


def measure_counting(vqa: CodeVQA, rng: random.Random, count: int, table: ShareTable) -> None:
    """What ``query`` counts in crowds, up to five of a kind and colour."""

    def right(case: tuple[Scene, Phrase]) -> bool:
        scene, what = case
        answer = vqa.run(draw_scene(scene), f'answer = query(img, "How many {what.many} are there?")')
        return answer.text == str(what.count(scene))

    for style in ("plain", "box"):
        cases = []
        for scene, _ in scenes(rng, count, style=style, min_things=4):
            crowd = crowd_scene(rng, scene)
            what = max(
                (Phrase(thing.kind, thing.color) for thing in crowd.things), key=lambda phrase: phrase.count(crowd)
            )
            if what.count(crowd) <= 5:
                cases.append((crowd, what))
        with ThreadPoolExecutor(16) as pool:
            table.add(f"query, how many in a crowd, {style}", list(pool.map(right, cases)))


SORTS: dict[str, Callable[[random.Random, Form], SceneQuestion]] = {
    "seen wording": lambda rng, form: draw_item(rng, form)[1],
    "unseen wording": lambda rng, form: draw_item(rng, form, unseen=True)[1],
    "new color-kind pairs": lambda rng, form: draw_item(rng, form, split="test")[1],
    "made-up nouns": lambda rng, form: rename(rng, draw_item(rng, form)[1], nouns=1.0, adjectives=0.3),
}


def measure_programs(vqa: CodeVQA, count: int, table: ShareTable) -> None:
    """Programs of each sort of question: are they the true ones?"""
    forms: tuple[Form, Form] = ("image", "set")
    for sort, make in SORTS.items():
        rng = random.Random(f"programs {sort}")
        items = [make(rng, rng.choice(forms)) for _ in range(count)]
        written = vqa.writer.language_model.generate(
            [vqa.writer.request(item.question, item.form)[0] for item in items]
        )
        lines = [
            extract_program(completion.text, continued=True).partition("\n")[2] for completion in written
        ]  # the first opens the pictures
        table.add(f"programs, {sort}", [line == item.program for line, item in zip(lines, items, strict=True)])


def measure_reading(vqa: CodeVQA, count: int, table: ShareTable) -> None:
    """Questions with true captions that tell the answer: is it read?"""
    for sort in ("query", "image", "set", "spatial"):
        rng, prompts, answers = random.Random(f"reading {sort}"), [], []
        for _ in range(count):
            if sort == "query":
                scene, question, answer = draw_elementary(rng)
                shown, program = [scene], question
            else:
                shown, item = draw_item(rng, "image" if sort == "spatial" else sort, kinds=_KINDS[sort])
                question, answer, program = item.question, item.answer, item.program
            descriptions = [telling(scene, rng, program) for scene in shown]
            captions = [description for description in descriptions if description is not None]
            if len(captions) == len(descriptions):
                prompts.append(
                    GenerationRequest(
                        render_reading([], captions, question, "set" if sort == "set" else "image"), 8, ("\n",)
                    )
                )
                answers.append(answer)
        read = [completion.text.strip() for completion in vqa.models.reader.generate(prompts)]
        table.add(f"reading, {sort}", [reply == expected for reply, expected in zip(read, answers, strict=True)])


_KINDS = {"image": (), "set": (), "spatial": SPATIAL}


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("vision", "language"))
    parser.add_argument("--cases", type=int, default=300, help="behind each figure, at most")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    options = parser.parse_args()
    exact = {f"{role}.dtype": "float32" for role in ("matcher", "captioner", "language_model")}
    table, rng = ShareTable(), random.Random(1234)
    with CodeVQA.from_preset("mini", sets=exact) as vqa:
        if options.what == "language":
            measure_programs(vqa, options.cases, table)
            measure_reading(vqa, options.cases, table)
        else:
            for measure in (measure_contrast, measure_pointing, measure_captions, measure_counting):
                measure(vqa, rng, options.cases, table)
    if options.json:
        options.json.write_text(json.dumps(table.rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
