"""Accuracy of CodeVQA and of the plain few-shot PnP-VQA baseline on the same questions.

``python benchmarks/accuracy.py [--images 200] [--sets 200] [--nlvr FOLDER --nlvr-limit 200]``

Drawn questions are fresh: their seeds are used nowhere in training, and their scenes come from the split that also
shows pairs of colour and kind never seen in training. NLVR (Suhr et al., ACL 2017) holds real people's statements; a
picture is cut into its three boxes, which are asked about as a set of images. Nothing was trained on it.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from codevqa import Answer, CodeVQA, Question
from codevqa.eval.statistics import compare, proportion
from codevqa.presets.presets import preset


@dataclass(frozen=True)
class Gold:
    """A question with its true answer and kind."""

    question: Question
    answer: str
    kind: str
    cluster: str


def drawn(count: int, form: str, seed: int) -> list[Gold]:
    """Returns fresh questions about drawn scenes."""
    from codevqa.miniworld.questions_set import sample_set
    from codevqa.miniworld.sampling import sample_question
    from codevqa.miniworld.world import draw, sample_scene

    found: list[Gold] = []
    for place in range(count):
        rng = random.Random(f"accuracy {form} {seed} {place}")
        scenes = [sample_scene(rng, split="test")] if form == "image" else sample_set(rng, split="test")
        item = sample_question(rng, scenes[0] if form == "image" else scenes)
        pictures = [draw(scene) for scene in scenes]
        question = Question(pictures, item.question, "image" if form == "image" else "set")
        found.append(Gold(question, item.answer, item.type, str(place)))
    return found


def nlvr(folder: Path, limit: int, permutations: int) -> list[Gold]:
    """Returns the first ``limit`` statements of NLVR dev over the first ``permutations`` of their six pictures each.

    The six pictures of a statement show the same three boxes in another order.
    """
    found: list[Gold] = []
    rows = [json.loads(line) for line in (folder / "dev.json").read_text().splitlines()[:limit]]
    for row in rows:
        for number in range(permutations):
            name = folder / "images" / row["directory"] / f"dev-{row['identifier']}-{number}.png"
            with Image.open(name) as picture:
                boxes = cut(picture.convert("RGB"))
            question = Question(boxes, row["sentence"], "set")
            found.append(Gold(question, "yes" if row["label"] == "true" else "no", "nlvr", row["identifier"]))
    return found


def cut(picture: Image.Image) -> list[Image.Image]:
    """Cuts an NLVR picture into its three boxes, 100 pixels square, 50 apart."""
    width, height = picture.size
    step = (width - height) // 2
    return [picture.crop((left, 0, left + height, height)) for left in (0, step, 2 * step)]


def right(answer: Answer, gold: str) -> bool:
    """Exact match, in lower case."""
    return answer.text.lower() == gold.lower()


def report(name: str, golds: Sequence[Gold], vqa: CodeVQA, rows: list[dict[str, object]]) -> None:
    """Asks both methods and prints the comparison."""
    started = time.perf_counter()
    program = vqa.ask_many([gold.question for gold in golds])
    between = time.perf_counter()
    plain = vqa.ask_many([gold.question for gold in golds], method="pnpvqa")
    ended = time.perf_counter()
    ours = [right(answer, gold.answer) for answer, gold in zip(program, golds, strict=True)]
    theirs = [right(answer, gold.answer) for answer, gold in zip(plain, golds, strict=True)]
    common = collections.Counter(gold.answer for gold in golds).most_common(1)[0]
    print(f"\n{name}: {len(golds)} questions; most common answer {common[0]!r} {common[1] / len(golds):.3f}")
    print(f"  CodeVQA     {proportion(ours)}  {(between - started) / len(golds):.2f} s a question")
    print(f"  PnP-VQA     {proportion(theirs)}  {(ended - between) / len(golds):.2f} s a question")
    print(f"  difference  {compare(ours, theirs, clusters=[gold.cluster for gold in golds])}")
    errors = collections.Counter(answer.error.type for answer in program if answer.error)
    print(f"  fallbacks   {sum(answer.fallback for answer in program)} {dict(errors)}")
    kinds: dict[str, list[int]] = collections.defaultdict(list)
    for place, gold in enumerate(golds):
        kinds[gold.kind].append(place)
    for kind, places in sorted(kinds.items()):
        shares = (sum(hits[place] for place in places) / len(places) for hits in (ours, theirs))
        print("    {:<22} n={:<4} CodeVQA {:.2f}  PnP-VQA {:.2f}".format(kind, len(places), *shares))
    for gold, one, other in zip(golds, program, plain, strict=True):
        source = one.program.source if one.program else None
        calls = [str(call) for call in one.trace.calls]
        error = one.error.message if one.error else None
        rows.append(
            {
                "set": name,
                "kind": gold.kind,
                "question": gold.question.text,
                "gold": gold.answer,
                "codevqa": one.text,
                "pnpvqa": other.text,
                "program": source,
                "calls": calls,
                "error": error,
            }
        )


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="mini")
    parser.add_argument("--images", type=int, default=200, help="questions about one drawn picture")
    parser.add_argument("--sets", type=int, default=200, help="questions about sets of drawn pictures")
    parser.add_argument("--nlvr", type=Path, help="folder with dev.json and images/ of NLVR dev")
    parser.add_argument("--nlvr-limit", type=int, default=200, help="statements; dev has 989")
    parser.add_argument("--nlvr-pictures", type=int, default=1, help="pictures a statement, 1 to 6")
    parser.add_argument("--workers", type=int, help="programs that run at once")
    parser.add_argument("--seed", type=int, default=0, help="seed of the fresh questions")
    parser.add_argument("--out", type=Path, help="write every question with its program as JSON lines")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    settings = preset(options.preset).settings
    if options.workers:
        settings = replace(settings, workers=options.workers)
    with CodeVQA.from_preset(options.preset, settings=settings) as vqa:
        print(f"preset {options.preset}, question seed {options.seed}, sampling seed {vqa.settings.seed}")
        if options.images:
            report("one image", drawn(options.images, "image", options.seed), vqa, rows)
        if options.sets:
            report("sets", drawn(options.sets, "set", options.seed), vqa, rows)
        if options.nlvr:
            report("NLVR dev", nlvr(options.nlvr, options.nlvr_limit, options.nlvr_pictures), vqa, rows)
    if options.out:
        options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
