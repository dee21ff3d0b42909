"""Tables and rules on drawn pictures: how fast, how right, and what a kill loses.

    python benchmarks/tables.py rules [--pictures 1000] [--seed 0]
    python benchmarks/tables.py speed [--pictures 2000]
    python benchmarks/tables.py kills [--pictures 60] [--kills 20]

``rules`` checks ten rules whose truth is known: which verdicts about a picture are right, and which are wrong and sure.
``speed`` answers five questions about each picture twice. ``kills`` kills ``codevqa table`` at random moments, and
counts the rows of the table that comes of it in the end.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import COLORS, KINDS, Scene, pluralize, save_scene

Truth = Callable[[Scene], bool | None]
"""Whether a picture should pass; None where the rule is not about it, or its question has no single answer."""


def draw(folder: Path, count: int, seed: int) -> list[Scene]:
    """Draws pictures into a folder."""
    rng = random.Random(f"tables {seed}")
    scenes = [sample_scene(rng, max_things=5) for _ in range(count)]
    for number, scene in enumerate(scenes):
        save_scene(scene, folder / f"{number:05}.png")
    return scenes


def count_of(scene: Scene, kind: str = "", color: str = "", size: str = "") -> int:
    """Returns how many things of a kind, color and size a scene shows; empty takes all."""
    return sum(
        kind in ("", thing.kind) and color in ("", thing.color) and size in ("", thing.size) for thing in scene.things
    )


def ten_rules(seed: int) -> list[tuple[dict[str, str], Truth]]:
    """Returns ten rules with their truths, about things drawn by a seed."""
    rng = random.Random(f"rules {seed}")
    kinds = rng.sample([kind for kind in KINDS if kind not in ("circle", "square", "triangle")], 8)
    colors = rng.sample(COLORS, 8)
    a, b, c, d, e, f, g, h = kinds

    def single(scene: Scene, kind: str, holds: Callable[[Scene], bool]) -> bool | None:
        return holds(scene) if count_of(scene, kind) == 1 else None

    def left(scene: Scene) -> bool | None:
        first, second = ([thing for thing in scene.things if thing.kind == kind] for kind in (e, f))
        return first[0].x < second[0].x if len(first) == len(second) == 1 else None

    def color_is(scene: Scene) -> bool | None:
        of = [thing.color for thing in scene.things if thing.kind == d]
        return of[0] in colors[4:8] if len(of) == 1 else None

    return [
        ({"ask": f"Is there a {colors[0]} thing?", "want": "no"}, lambda s: count_of(s, color=colors[0]) == 0),
        ({"ask": f"Are there any {pluralize(a)}?", "want": "no"}, lambda s: count_of(s, a) == 0),
        ({"ask": f"Is there a {colors[1]} {b}?", "want": "no"}, lambda s: count_of(s, b, colors[1]) == 0),
        (
            {"ask": f"How many {colors[2]} things are there?", "want": "<= 1"},
            lambda s: count_of(s, color=colors[2]) <= 1,
        ),
        ({"ask": f"How many {pluralize(c)} are there?", "want": "0-1"}, lambda s: count_of(s, c) <= 1),
        (
            {"ask": f"What color is the {d}?", "where": f"Is there a {d}?", "want": ", ".join(colors[4:8])},
            color_is,
        ),
        (
            {
                "ask": f"Is the {e} to the left of the {f}?",
                "where": f"Are there both a {e} and a {f}?",
                "want": "yes",
            },
            left,
        ),
        ({"ask": f"Is there a large {g}?", "want": "no"}, lambda s: count_of(s, g, size="large") == 0),
        (
            {"ask": f"Is the {h} {colors[3]}?", "where": f"Is there a {h}?", "want": "no"},
            lambda s: single(s, h, lambda s: count_of(s, h, colors[3]) == 0),
        ),
        (
            {"ask": f"Is there a {colors[5]} thing or a {a}?", "want": "no"},
            lambda s: count_of(s, color=colors[5]) + count_of(s, a) == 0,
        ),
    ]


def check_rules(pictures: int, seed: int) -> None:
    """Prints how right the verdicts of ten rules are."""
    from codevqa.collections.collection import Collection
    from codevqa.core.rules import read_rules
    from codevqa.engine.checking import Lock, RuleCheck
    from codevqa.engine.codevqa import CodeVQA
    from codevqa.presets.identity import identity_of

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        scenes = draw(folder / "photos", pictures, seed)
        rules = ten_rules(seed)
        lines = []
        for number, (rule, _) in enumerate(rules, 1):
            want = rule["want"].split(", ")
            fields = {**rule, "want": want if len(want) > 1 else want[0], "name": f"rule {number}"}
            lines += ["[[rule]]", *(f"{name} = {value!r}" for name, value in fields.items())]
        (folder / "rules.toml").write_text("\n".join(lines))
        started = time.perf_counter()
        with CodeVQA.from_preset("mini") as vqa:
            assert vqa.configuration is not None
            collection = Collection(folder / "photos", index=folder / "index")
            check = RuleCheck(
                read_rules(folder / "rules.toml"),
                collection,
                Lock(vqa.model_names, ""),
                identity_of(vqa.configuration),
                lambda: vqa,
            )
            verdicts = check.run().verdicts
        print(f"{time.perf_counter() - started:.0f} s for {len(rules)} rules on {pictures:,} pictures, seed {seed}")
        totals: Counter[str] = Counter()
        for (rule, truth), verdict in zip(rules, verdicts, strict=True):
            counts: Counter[str] = Counter()
            for scene, picture in zip(scenes, verdict.pictures, strict=True):
                true = truth(scene)
                if true is None:
                    counts["none"] += 1
                    continue
                value = picture.cell.value
                judged = verdict.rule.passes(value) if picture.side in ("look", "pass", "fail") else None
                counts["all"] += 1
                counts["right"] += picture.side == ("pass" if true else "fail")
                counts["look"] += picture.side == "look"
                counts["wrong and sure"] += picture.side not in ("look", "pass" if true else "fail")
                counts["right by value"] += judged is true
            totals += counts
            print(f"{rule['ask'][:52]:52}  {describe(counts)}")
        print(f"{'all':52}  {describe(totals)}")


def describe(counts: Counter[str]) -> str:
    """Returns counts as shares of all."""
    whole = max(1, counts["all"])
    shares = {name: counts[name] for name in ("right", "look", "wrong and sure", "right by value")}
    return f"n {whole:5}  " + "  ".join(f"{name} {100 * count / whole:5.1f}" for name, count in shares.items())


QUESTIONS = (
    "many: How many things are there?",
    "red: Is there a red thing?",
    "left: Is the cup to the left of the star?",
    "color: What color is the hat?",
    "both: Are there both a key and a fish?",
)


def command(folder: Path, out: str) -> list[str]:
    """Returns the command that answers the five questions."""
    asked = [word for question in QUESTIONS for word in ("--ask", question)]
    return [
        sys.executable,
        "-m",
        "codevqa",
        "table",
        str(folder / "photos"),
        *asked,
        "--out",
        str(folder / out),
        "--quiet",
    ]


def measure_speed(pictures: int) -> None:
    """Prints the seconds a row of a first and a second run."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        draw(folder / "photos", pictures, 1)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        seconds = []
        for _ in range(2):
            started = time.perf_counter()
            subprocess.run([*command(folder, "a.csv"), "--yes"], check=True, env=environment)
            seconds.append(time.perf_counter() - started)
        first, second = seconds
        print(f"{pictures:,} pictures x {len(QUESTIONS)} questions: {first:.0f} s, {first / pictures:.3f} s a row; ")
        print(f"again: {second:.2f} s, {first / second:.0f} times faster")


def count_kills(pictures: int, kills: int) -> None:
    """Prints what becomes of a table that is killed at random moments."""
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        draw(folder / "photos", pictures, 2)
        whole = {**os.environ, "XDG_CACHE_HOME": str(folder / "whole")}
        started = time.perf_counter()
        subprocess.run(command(folder, "whole.csv"), check=True, env=whole)
        seconds = time.perf_counter() - started
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "killed")}
        killed = 0
        for number in range(kills):
            with subprocess.Popen(command(folder, "killed.csv"), env=environment) as process:
                try:
                    process.wait(rng.uniform(1.5, 2.0 + 2 * seconds / kills))  # it loads for two seconds
                except subprocess.TimeoutExpired:
                    killed += 1
                    process.send_signal((signal.SIGKILL, signal.SIGINT)[number % 2])
                    process.wait(30)
        subprocess.run(command(folder, "killed.csv"), check=True, env=environment)
        tables = [list(csv.DictReader((folder / name).open())) for name in ("whole.csv", "killed.csv")]
        equal = sum(first == second for first, second in zip(*tables, strict=True))
        names = Counter(row["filepath"] for row in tables[1])
        once = sum(count == 1 for count in names.values())
        print(f"{killed} of {kills} runs killed; {len(tables[1])} rows of {pictures}, {once} once, {equal} equal")


def main(words: Sequence[str] | None = None) -> None:
    """Runs what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rules", "speed", "kills"))
    parser.add_argument("--pictures", type=int)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(words)
    if options.what == "rules":
        check_rules(options.pictures or 1000, options.seed)
    elif options.what == "speed":
        measure_speed(options.pictures or 2000)
    else:
        count_kills(options.pictures or 60, options.kills)


if __name__ == "__main__":
    main()
