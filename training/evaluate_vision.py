"""Measures the mini matcher and captioner on scenes that training never draws, through the package's own classes.

    python -m training.evaluate_vision [--weights codevqa/mini/weights] [--scenes 300] [--device cuda] [--json FILE]

Scenes are of split "test": half of the plain ones show pairs of colour and kind that training leaves out; rows that say
"held-out" are of those pairs alone. Prints a table with the number of cases behind every figure and its 95 % interval
(Wilson's).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from codevqa.core.images import Picture, load_picture
from codevqa.eval.statistics import proportion
from codevqa.miniworld.captions import captions, relation_caption
from codevqa.miniworld.truth import is_true, parse
from codevqa.miniworld.world import CANVAS, HELD_OUT, Scene, Thing, draw, sample_scene
from codevqa.models.base import CaptionRequest, Match, MatchRequest, SimilarityRequest
from codevqa.models.blip.captioner import BlipCaptioner
from codevqa.models.blip.matcher import BlipMatcher
from codevqa.models.options import Average

from .vision_texts import (
    GENERIC,
    Contrast,
    Spec,
    _asked_pair,
    _one_pair,
    _two_pair,
    contrast,
    mentions,
    mutated,
    relation_pair,
    spec_of,
    wrong_spec,
)
from .vision_twins import CHANGES, crowded, twin

PROMPT = "a picture of "
PATCHES = 20
BLOCK = 2
"""The text block whose cross-attention the package reads."""


rows: list[dict[str, object]] = []
"""Every row reported, for ``--json``."""


def report(name: str, right: Sequence[bool]) -> None:
    """Prints one row: a share, how many cases it is of, and its interval."""
    if not right:
        rows.append({"what": name, "share": None, "n": 0})
        print(f"| {name} | - | 0 | |", flush=True)
        return
    found = proportion([bool(one) for one in right])
    rows.append({"what": name, "share": found.value, "n": found.n, "low": found.low, "high": found.high})
    print(f"| {name} | {found.value:.3f} | {found.n} | {found.low:.3f} to {found.high:.3f} |", flush=True)


def scenes(rng: random.Random, count: int, **settings: object) -> Iterator[tuple[Scene, Picture]]:
    """Test scenes with their pictures."""
    for _ in range(count):
        scene = sample_scene(rng, split="test", **settings)  # type: ignore[arg-type]
        yield scene, load_picture(draw(scene))


def patch_of(match: Match) -> tuple[int, int]:
    """Column and row of the most relevant patch."""
    row, column = np.unravel_index(int(match.relevance.argmax()), match.relevance.shape)
    return int(column), int(row)


def points_at(match: Match, thing: Thing, patches: float = 0.0) -> bool:
    """Whether the middle of the most relevant patch lies in the thing's box, or so many patches beside it."""
    size = CANVAS / match.relevance.shape[0]
    column, row = patch_of(match)
    x, y, spare = (column + 0.5) * size, (row + 0.5) * size, (0.5 + patches) * size
    left, top, right, bottom = thing.box
    return bool(left - spare <= x <= right + spare and top - spare <= y <= bottom + spare)


def held_out(thing: Thing) -> bool:
    """Whether training leaves its pair of colour and kind out."""
    return (thing.color, thing.kind) in HELD_OUT


Pairs = Callable[[random.Random, Scene], "tuple[str, str] | None"]


def _caption_pair(form: str) -> Pairs:
    """True and nearly true captions of one form."""

    def propose(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
        for _ in range(12):
            changed, focus = mutated(rng, scene)
            if form == "relation":
                right, wrong = relation_caption(scene, rng), relation_caption(changed, rng, focus)
            else:
                right, wrong = captions(scene, rng, 1)[0], captions(changed, rng, 1, focus)[0]
            fits = all(_form(text) == form for text in (right, wrong))
            if right and wrong and fits and is_true(scene, wrong) is False:
                return right, wrong
        return None

    return propose


def _form(text: str) -> str:
    if "tower" in text or " block " in text:
        return "tower"
    if "touching" in text:
        return "touching"
    if any(word in text for word in (" left of", " right of", " above", " below", " over ", " on top of")):
        return "relation"
    phrase = parse(text)
    return "count" if phrase and phrase.exact else "listing" if " and " in text else "other"


def _unseen_pair(rng: random.Random, scene: Scene) -> tuple[str, str] | None:
    """Phrases that name pairs of colour and kind left out of training."""
    here = [Spec(thing.kind, thing.color) for thing in scene.things if (thing.color, thing.kind) in HELD_OUT]
    color, kind = rng.choice(sorted(HELD_OUT))
    if not here or Spec(kind, color).find(scene):
        return None
    return rng.choice(here).name, Spec(kind, color).name


def matching(matcher: BlipMatcher, rng: random.Random, count: int) -> None:
    """ITM: is the sign of the logit right?"""
    kinds: dict[str, Pairs] = {
        "phrase or question on one thing": _one_pair,
        "phrase or question on two": _two_pair,
        "question of the question maker": _asked_pair,
        "phrase, pair left out of training": _unseen_pair,
        "caption, count": _caption_pair("count"),
        "caption, relation": _caption_pair("relation"),
        "relation, things exchanged": lambda rng, scene: relation_pair(rng, scene, "swap"),
        "relation, opposite word": lambda rng, scene: relation_pair(rng, scene, "opposite"),
        "relation, one thing changed": lambda rng, scene: relation_pair(rng, scene, "one"),
        "caption, list": _caption_pair("listing"),
        "caption, touching a wall": _caption_pair("touching"),
        "caption, tower": _caption_pair("tower"),
    }
    for name, propose in kinds.items():
        requests, labels = [], []
        style = "box" if "touching" in name or "tower" in name else "plain" if "left out" in name else None
        for scene, picture in scenes(rng, count, style=style):
            pair = propose(rng, scene)
            if pair is not None:
                requests += [MatchRequest(picture, text) for text in pair]
                labels += [True, False]
        logits = [match.logit > 0 for match in matcher.match(requests)]
        right = [found == label for found, label in zip(logits, labels, strict=True)]
        report(f"ITM, {name}: matching", right[::2])
        report(f"ITM, {name}: not matching", right[1::2])


def contrasting(matcher: BlipMatcher, rng: random.Random, count: int) -> None:
    """ITC: which of four pictures is the phrase true of?"""
    for style in ("plain", "box"):
        drawn = list(scenes(rng, count, style=style))
        requests = []
        for scene, picture in drawn:
            told = contrast(rng, scene)
            text = PROMPT + told.text.removeprefix(PROMPT)
            others = [other for another, other in drawn if not told.fits(another)]
            if len(others) >= 3:
                requests += [SimilarityRequest(one, text) for one in (picture, *rng.sample(others, 3))]
        scores = np.array(matcher.similarity(requests)).reshape(-1, 4)
        report(f"ITC, which of four, {style}", [bool(row.argmax() == 0) for row in scores])
    near_twins(matcher, rng, count)


def near_twins(matcher: BlipMatcher, rng: random.Random, count: int) -> None:
    """ITC: which of four pictures, when the other three differ by one change each that makes the text false?"""
    for style in ("plain", "box"):
        verdicts: list[bool] = []
        beaten: dict[str, list[bool]] = {change: [] for change in CHANGES}
        requests, changes = [], []
        for scene, picture in scenes(rng, count, style=style):
            found = three_twins(rng, scene)
            if found is not None:
                told, others = found
                text = PROMPT + told.text.removeprefix(PROMPT)
                pictures = [picture, *(load_picture(draw(other)) for _, other in others)]
                requests += [SimilarityRequest(one, text) for one in pictures]
                changes.append([change for change, _ in others])
        scores = np.array(matcher.similarity(requests)).reshape(-1, 4)
        for row, names in zip(scores, changes, strict=True):
            verdicts.append(bool(row.argmax() == 0))
            for name, score in zip(names, row[1:], strict=True):
                beaten[name].append(bool(row[0] > score))
        report(f"ITC, which of four near-twins, {style}", verdicts)
        for name, right in beaten.items():
            report(f"ITC, above one near-twin, {style}: {name} changed", right)


def three_twins(rng: random.Random, scene: Scene) -> tuple[Contrast, list[tuple[str, Scene]]] | None:
    """A phrase true of the scene, and three near-twins of it, all different, of which it is false."""
    for _ in range(6):
        told = contrast(rng, scene)
        found: dict[tuple[Thing, ...], str] = {}
        for _ in range(60):
            change = rng.choice(CHANGES)
            other = twin(rng, scene, change, train=False)
            if other is not None and not told.fits(other):
                found.setdefault(other.things, change)
            if len(found) == 3:
                return told, [(change, replace(scene, things=things)) for things, change in found.items()]
    return None


def pointing(weights: Path, rng: random.Random, count: int, device: str | None) -> None:
    """GradCAM: does its peak lie on the thing that a phrase names?"""
    cases: list[tuple[str, Thing, Picture, str, tuple[int, int]]] = []
    for style in ("plain", "box"):
        for scene, picture in scenes(rng, count, style=style, min_things=3, max_things=6):
            alone = [thing for thing in scene.things if len(Spec(thing.kind, thing.color).find(scene)) == 1]
            if scene.tower or not alone:
                continue
            chosen = [rng.choice(alone)]
            # One more of those that training never showed, so that there are enough of them.
            chosen += [thing for thing in alone if held_out(thing) and thing is not chosen[0]][:1]
            for thing in chosen:
                name = f"{thing.color} {thing.kind}"
                question = f"is the {name} on the left side of the picture"
                cases.append((style, thing, picture, question, (7, 7 + len(name))))
    for block in (BLOCK, *(block for block in range(4) if block != BLOCK)):
        for average in ("all", "words"):
            matcher = load_matcher(weights, device, block, average)
            for style in ("plain", "box", "held-out"):
                chosen_cases = [case for case in cases if case[0] == style or (style[0] == "h" and held_out(case[1]))]
                _points(matcher, f"pointing, block {block}, {average}, {style}", chosen_cases, more=block == BLOCK)
            if block == BLOCK and average == "words":
                spans = [MatchRequest(picture, text, text[at[0] : at[1]]) for _, _, picture, text, at in cases]
                found = matcher.match(spans)
                right = [points_at(match, case[1]) for match, case in zip(found, cases, strict=True)]
                report("pointing, block 2: question, averaged over the phrase in it", right)


def _points(
    matcher: BlipMatcher, name: str, cases: list[tuple[str, Thing, Picture, str, tuple[int, int]]], *, more: bool
) -> None:
    found = matcher.match([MatchRequest(picture, text[at[0] : at[1]]) for _, _, picture, text, at in cases])
    report(f"{name}: phrase", [points_at(match, case[1]) for match, case in zip(found, cases, strict=True)])
    if more:
        near = [points_at(match, case[1], 0.5) for match, case in zip(found, cases, strict=True)]
        report(f"{name}: phrase, within one patch", near)
        found = matcher.match([MatchRequest(picture, text) for _, _, picture, text, _ in cases])
        right = [points_at(match, case[1]) for match, case in zip(found, cases, strict=True)]
        report(f"{name}: question", right)


def chosen_patches(match: Match, rng: np.random.Generator) -> tuple[int, ...]:
    """Patches drawn without replacement in proportion to relevance."""
    chance = match.relevance.astype(np.float64).ravel() + 1e-12
    return tuple(sorted(int(place) for place in rng.choice(chance.size, PATCHES, False, chance / chance.sum())))


Asked = tuple[Scene, Picture, str, Spec]


def describing(matcher: BlipMatcher, captioner: BlipCaptioner, rng: random.Random, count: int) -> None:
    """Captions: are they true, and do they speak of what was asked?"""
    numbers = np.random.default_rng(rng.randrange(2**32))
    for style in ("plain", "box"):
        drawn = list(scenes(rng, count, style=style))
        _wholes(captioner, style, drawn)
        if style == "plain":
            unseen = [one for one in drawn if any(map(held_out, one[0].things))]
            _wholes(captioner, "plain, a held-out pair in it", unseen)
            cases = [(scene, picture, rng.choice(list(filter(held_out, scene.things)))) for scene, picture in unseen]
            there = [
                (scene, picture, f"is there {spec.one}", spec)
                for scene, picture, thing in cases
                for spec in (Spec(thing.kind, thing.color),)
            ]
            _questions(matcher, captioner, numbers, "there, held-out", there)
        asked: dict[str, list[Asked]] = {"there": [], "absent": [], "color": [], "count": [], "count of a kind": []}
        for scene, picture in drawn:
            thing = rng.choice(scene.things)
            spec = Spec(thing.kind, thing.color)
            kind = Spec(rng.choice(scene.things).kind)
            asked["there"].append((scene, picture, f"is there {spec.one}", spec))
            asked["color"].append((scene, picture, f"what color is the {thing.kind}", Spec(thing.kind)))
            asked["count"].append((scene, picture, f"how many {spec.many} are there", spec))
            asked["count of a kind"].append((scene, picture, f"how many {kind.many} are there", kind))
            wrong = wrong_spec(rng, scene, spec_of(rng, scene, thing))
            if wrong:
                asked["absent"].append((scene, picture, f"is there {wrong.one}", wrong))
        for name, chosen in asked.items():
            _questions(matcher, captioner, numbers, f"{name}, {style}", chosen)
    crowds: list[Asked] = []
    for _ in range(count):
        scene = crowded(rng, sample_scene(rng, style="plain", min_things=4, max_things=8, split="test"))
        spec = max((Spec(thing.kind, thing.color) for thing in scene.things), key=lambda one: len(one.find(scene)))
        if len(spec.find(scene)) <= 5:
            crowds.append((scene, load_picture(draw(scene)), f"how many {spec.many} are there", spec))
    _questions(matcher, captioner, numbers, "count in a crowd", crowds)


def named(scene: Scene, text: str) -> list[bool]:
    """Of each thing a caption names, whether one of that kind and colour is there; "object" names none."""
    return [
        bool(Spec(spec.noun, spec.color).find(scene)) and (spec.noun != "block" or bool(scene.tower))
        for spec in mentions(text)
        if spec.noun not in GENERIC
    ]


def _wholes(captioner: BlipCaptioner, name: str, drawn: list[tuple[Scene, Picture]]) -> None:
    told = captioner.caption([CaptionRequest(picture) for _, picture in drawn])
    pairs = [(scene, text) for (scene, _), text in zip(drawn, told, strict=True)]
    verdicts = [is_true(scene, text) for scene, text in pairs]
    name = f"caption, whole picture, greedy, {name}"
    report(f"{name}: true", [verdict is True for verdict in verdicts])
    report(f"{name}: readable", [verdict is not None for verdict in verdicts])
    report(f"{name}: things named are there", [right for scene, text in pairs for right in named(scene, text)])


def _questions(
    matcher: BlipMatcher,
    captioner: BlipCaptioner,
    numbers: np.random.Generator,
    name: str,
    cases: list[Asked],
) -> None:
    matches = matcher.match([MatchRequest(picture, text) for _, picture, text, _ in cases])
    draws = 8
    requests = [
        CaptionRequest(case[1], chosen_patches(match, numbers), int(numbers.integers(2**31)))
        for case, match in zip(cases, matches, strict=True)
        for _ in range(draws)
    ]
    told = captioner.caption(requests)
    parts = [told[start : start + draws] for start in range(0, len(told), draws)]
    report(
        f"{draws} captions for a question, {name}: each true",
        [is_true(case[0], text) is True for case, row in zip(cases, parts, strict=True) for text in row],
    )
    report(
        f"{draws} captions for a question, {name}: things named are there",
        [right for case, row in zip(cases, parts, strict=True) for text in row for right in named(case[0], text)],
    )
    mentioned = []
    for (scene, _, _, spec), row in zip(cases, parts, strict=True):
        present = [shown for text in row for shown in mentions(text) if _speaks_of(scene, shown, spec)]
        mentioned.append(bool(present))
    report(f"{draws} captions for a question, {name}: some speak of it", mentioned)
    if name.startswith("count"):
        exact = []
        by_count: dict[int, list[bool]] = {}
        for (scene, _, _, spec), row in zip(cases, parts, strict=True):
            common = _told_number(row, scene, spec)
            number = len(spec.find(scene))
            exact.append(common == number)
            by_count.setdefault(number, []).append(common == number)
        report(f"{draws} captions for a question, {name}: their commonest number is right", exact)
        for number in sorted(by_count):
            report(f"{draws} captions for a question, {name}: the same where it is {number}", by_count[number])


def _speaks_of(scene: Scene, shown: Spec, spec: Spec) -> bool:
    noun = "square" if shown.noun == "block" else shown.noun
    return noun == spec.noun and (not spec.color or shown.color == spec.color)


def _told_number(texts: Sequence[str], scene: Scene, spec: Spec) -> int:
    """How many there are of something by captions: the commonest number, or, of a kind, that of its colors together."""
    said: dict[str, list[int]] = {}
    for text in texts:
        for part in text.replace(" and ", ", ").split(", "):
            phrase = parse(part)
            if phrase and not phrase.size and _speaks_of(scene, Spec(phrase.noun, phrase.color), spec):
                said.setdefault(phrase.color, []).append(phrase.number)
    common = {color: max(set(numbers), key=numbers.count) for color, numbers in said.items()}
    return common[spec.color] if spec.color in common else sum(common.values())


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path(__file__).parents[1] / "codevqa/mini/weights")
    parser.add_argument("--scenes", type=int, default=300, help="scenes behind each figure, at most")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--only", choices=("itm", "itc", "pointing", "captions"))
    parser.add_argument("--device", help="cpu or cuda; a GPU where there is one when left out")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    matcher = load_matcher(chosen.weights, chosen.device, BLOCK, "all")
    captioner = BlipCaptioner.from_pretrained(
        str(chosen.weights / "captioner"),
        prompt=PROMPT,
        min_length=0,
        max_length=20,
        temperature=chosen.temperature,
        device=chosen.device,
        dtype="float32",
        max_batch=256,
    )
    print("| what | share | n | 95 % interval |\n|---|---|---|---|")
    if chosen.only in (None, "itm"):
        matching(matcher, rng, chosen.scenes)
    if chosen.only in (None, "itc"):
        contrasting(matcher, rng, chosen.scenes)
    if chosen.only in (None, "pointing"):
        pointing(chosen.weights, rng, chosen.scenes, chosen.device)
    if chosen.only in (None, "captions"):
        describing(matcher, captioner, rng, chosen.scenes)
    if chosen.json:
        history = {"scenes": chosen.scenes, "seed": chosen.seed, "temperature": chosen.temperature, "rows": rows}
        chosen.json.write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")


def load_matcher(weights: Path, device: str | None, block: int, average: Average) -> BlipMatcher:
    """The matcher in full precision, also on a GPU."""
    folder = str(weights / "matcher")
    return BlipMatcher.from_pretrained(
        folder, device=device, dtype="float32", block=block, average=average, max_batch=256
    )


if __name__ == "__main__":
    main()
