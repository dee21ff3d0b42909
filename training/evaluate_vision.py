"""Measures the mini matcher and captioner on scenes that training never draws, through the package's own classes.

    python -m training.evaluate_vision [--weights codevqa/mini/weights] [--scenes 300]

Scenes are of split "test": half of the plain ones show pairs of colour and kind that training leaves out. Prints a
table with the number of cases behind every figure.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from codevqa.images import Picture, load_picture
from codevqa.mini.captions import captions, relation_caption
from codevqa.mini.truth import is_true, parse
from codevqa.mini.world import CANVAS, HELD_OUT, Scene, Thing, draw, sample_scene
from codevqa.models.base import CaptionRequest, Match, MatchRequest, SimilarityRequest
from codevqa.models.blip_captioner import BlipCaptioner
from codevqa.models.blip_matcher import BlipMatcher

from .vision_texts import (
    Spec,
    _asked_pair,
    _one_pair,
    _two_pair,
    contrast,
    mutated,
    spec_of,
    wrong_spec,
)

PROMPT = "a picture of "
PATCHES = 20


def report(name: str, right: Sequence[bool]) -> None:
    """Prints one row: a share and how many cases it is of."""
    print(f"| {name} | {np.mean(right):.3f} | {len(right)} |" if right else f"| {name} | - | 0 |", flush=True)


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


def pointing(weights: Path, rng: random.Random, count: int) -> None:
    """GradCAM: does its peak lie on the thing that a phrase names?"""
    cases: list[tuple[str, Thing, Picture, str, tuple[int, int]]] = []
    for style in ("plain", "box"):
        for scene, picture in scenes(rng, count, style=style, min_things=3, max_things=6):
            alone = [thing for thing in scene.things if len(Spec(thing.kind, thing.color).find(scene)) == 1]
            if scene.tower or not alone:
                continue
            thing = rng.choice(alone)
            name = f"{thing.color} {thing.kind}"
            question = f"is the {name} on the left side of the picture"
            cases.append((style, thing, picture, question, (7, 7 + len(name))))
    for block in range(4):
        for average in ("words", "all"):
            matcher = BlipMatcher.from_pretrained(str(weights / "matcher"), block=block, average=average)
            for style in ("plain", "box"):
                chosen = [case for case in cases if case[0] == style]
                phrases = [MatchRequest(picture, text[at[0] : at[1]]) for _, _, picture, text, at in chosen]
                found = matcher.match(phrases)
                right = [points_at(match, case[1]) for match, case in zip(found, chosen, strict=True)]
                near = [points_at(match, case[1], 0.5) for match, case in zip(found, chosen, strict=True)]
                report(f"pointing, block {block}, {average}, {style}: phrase", right)
                if block == 2:
                    report(f"pointing, block {block}, {average}, {style}: phrase, half a patch more", near)
                    whole = matcher.match([MatchRequest(picture, text) for _, _, picture, text, _ in chosen])
                    right = [points_at(match, case[1]) for match, case in zip(whole, chosen, strict=True)]
                    report(f"pointing, block {block}, {average}, {style}: question", right)
            if block == 2 and average == "words":
                spans = [MatchRequest(picture, text, at) for _, _, picture, text, at in cases]
                found = matcher.match(spans)
                right = [points_at(match, case[1]) for match, case in zip(found, cases, strict=True)]
                report("pointing, block 2: question, averaged over the phrase in it", right)


def chosen_patches(match: Match, rng: np.random.Generator) -> tuple[int, ...]:
    """Patches drawn without replacement in proportion to relevance."""
    chance = match.relevance.astype(np.float64).ravel() + 1e-12
    return tuple(sorted(int(place) for place in rng.choice(chance.size, PATCHES, False, chance / chance.sum())))


def describing(matcher: BlipMatcher, captioner: BlipCaptioner, rng: random.Random, count: int) -> None:
    """Captions: are they true, and do they speak of what was asked?"""
    numbers = np.random.default_rng(rng.randrange(2**32))
    for style in ("plain", "box"):
        drawn = list(scenes(rng, count, style=style))
        told = captioner.caption([CaptionRequest(picture) for _, picture in drawn])
        verdicts = [is_true(scene, text) for (scene, _), text in zip(drawn, told, strict=True)]
        report(f"caption, whole picture, greedy, {style}: true", [verdict is True for verdict in verdicts])
        report(f"caption, whole picture, greedy, {style}: readable", [verdict is not None for verdict in verdicts])
        asked: dict[str, list[tuple[Scene, Picture, str, Spec]]] = {"there": [], "absent": [], "count": [], "color": []}
        for scene, picture in drawn:
            thing = rng.choice(scene.things)
            spec = Spec(thing.kind, thing.color)
            asked["there"].append((scene, picture, f"is there {spec.one}", spec))
            asked["count"].append((scene, picture, f"how many {spec.many} are there", spec))
            asked["color"].append((scene, picture, f"what color is the {thing.kind}", Spec(thing.kind)))
            wrong = wrong_spec(rng, scene, spec_of(rng, scene, thing))
            if wrong:
                asked["absent"].append((scene, picture, f"is there {wrong.one}", wrong))
        for name, cases in asked.items():
            _questions(matcher, captioner, numbers, f"{name}, {style}", cases)


def _questions(
    matcher: BlipMatcher,
    captioner: BlipCaptioner,
    numbers: np.random.Generator,
    name: str,
    cases: list[tuple[Scene, Picture, str, Spec]],
) -> None:
    matches = matcher.match([MatchRequest(picture, text) for _, picture, text, _ in cases])
    draws = 8
    requests = [
        CaptionRequest(case[1], chosen_patches(match, numbers), int(numbers.integers(2**31)))
        for case, match in zip(cases, matches, strict=True)
        for _ in range(draws)
    ]
    told = captioner.caption(requests)
    rows = [told[start : start + draws] for start in range(0, len(told), draws)]
    report(
        f"{draws} captions for a question, {name}: each true",
        [is_true(case[0], text) is True for case, row in zip(cases, rows, strict=True) for text in row],
    )
    mentioned = []
    for (scene, _, _, spec), row in zip(cases, rows, strict=True):
        present = [shown for text in row for shown in (parse_all(text)) if _speaks_of(scene, shown, spec)]
        mentioned.append(bool(present))
    report(f"{draws} captions for a question, {name}: some speak of it", mentioned)
    if name.startswith("count"):
        exact = []
        for (scene, _, _, spec), row in zip(cases, rows, strict=True):
            said = [number for text in row for number in _numbers(text, scene, spec)]
            common = max(set(said), key=said.count) if said else 0
            exact.append(common == len(spec.find(scene)))
        report(f"{draws} captions for a question, {name}: their commonest number is right", exact)


def parse_all(text: str) -> list[Spec]:
    """The things a caption mentions."""
    from .vision_texts import mentions

    return mentions(text)


def _speaks_of(scene: Scene, shown: Spec, spec: Spec) -> bool:
    noun = "square" if shown.noun == "block" else shown.noun
    return noun == spec.noun and (not spec.color or shown.color == spec.color)


def _numbers(text: str, scene: Scene, spec: Spec) -> list[int]:
    found = []
    for part in text.replace(" and ", ", ").split(", "):
        phrase = parse(part)
        if phrase is None or phrase.size or phrase.color != spec.color:
            continue
        if _speaks_of(scene, Spec(phrase.noun, phrase.color), spec):
            found.append(phrase.number)
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, default=Path(__file__).parents[1] / "codevqa/mini/weights")
    parser.add_argument("--scenes", type=int, default=300, help="scenes behind each figure, at most")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--only", choices=("itm", "itc", "pointing", "captions"))
    chosen = parser.parse_args()
    rng = random.Random(chosen.seed)
    matcher = BlipMatcher.from_pretrained(str(chosen.weights / "matcher"), block=2, average="all")
    captioner = BlipCaptioner.from_pretrained(
        str(chosen.weights / "captioner"), prompt=PROMPT, min_length=0, max_length=20, temperature=chosen.temperature
    )
    print("| what | share | n |\n|---|---|---|")
    if chosen.only in (None, "itm"):
        matching(matcher, rng, chosen.scenes)
    if chosen.only in (None, "itc"):
        contrasting(matcher, rng, chosen.scenes)
    if chosen.only in (None, "pointing"):
        pointing(chosen.weights, rng, chosen.scenes)
    if chosen.only in (None, "captions"):
        describing(matcher, captioner, rng, chosen.scenes)


if __name__ == "__main__":
    main()
