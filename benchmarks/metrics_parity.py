"""Our metrics against the official scripts, on the same drawn questions and predictions.

``python -m benchmarks.metrics_parity --gqa eval.py --vqa vqaEval.py --nlvr metrics_images.py --nlvr2 metrics.py`` takes
some of the scripts as their authors give them out (they are not ours to include), and prints a table for
docs/metrics.md:

* GQA: ``eval.py`` of https://nlp.stanford.edu/data/gqa/eval.zip, or https://github.com/ronghanghu/gqa_eval_script;
* VQA: ``vqaEval.py`` of https://github.com/GT-Vision-Lab/VQA (Python 2: its print statements are rewritten);
* NLVR and NLVR2: ``nlvr/metrics_images.py`` and ``nlvr2/eval/metrics.py`` of https://github.com/lil-lab/nlvr.

Exit status 1 where a figure differs. A script that is not given is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from codevqa.eval.metrics import metric_for
from codevqa.eval.statistics import Interval
from codevqa.eval.task import Example

Line: TypeAlias = tuple[str, float, float]
"""A figure's name, the official value and ours, both as the script prints it."""
WORDS = ("red", "Red", "a dog", "t-shirt", "T-shirt.", "two", "2", "none", "yes", "no", "dont", "1,000", "mt. fuji", "")
TYPES = ("query", "verify", "choose", "logical", "compare")


def printed(script: Path, *words: str, folder: Path) -> dict[str, float]:
    """Runs a script and returns the numbers it prints, by their names."""
    done = subprocess.run(
        [sys.executable, str(script.resolve()), *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        sys.exit(f"{script} failed: {done.stderr.strip().splitlines()[-1]}")
    return {name.lower(): float(number) for name, number in re.findall(r"^(\w+)(?:=|: )([\d.]+)", done.stdout, re.M)}


def figures(dataset: str, variant: str, pairs: Sequence[tuple[Example, str]], **options: Any) -> dict[str, float]:
    """Returns accuracy and the figures of a whole run."""
    metric = metric_for(dataset, variant, **options)
    scores = [metric.score(*pair) or 0.0 for pair in pairs]
    found = {name: one.value if isinstance(one, Interval) else one for name, one in metric.corpus(pairs).items()}
    return {"accuracy": sum(scores) / len(scores)} | {name: one for name, one in found.items() if one is not None}


def gqa(script: Path, folder: Path) -> Iterator[Line]:
    """Accuracy on balanced questions and the four figures that need more files, to the hundredth that is printed."""
    dice = random.Random(1)
    ids = [f"0{number}" for number in range(1500)]
    words = [word for word in WORDS if word]
    records: dict[str, dict[str, Any]] = {
        one: {
            "question": "What is it?", "isBalanced": dice.random() < 0.7, "answer": dice.choice(words),
            "entailed": [*dice.sample(ids, dice.choice((0, 1, 3))), one], "imageId": str(int(one) % 60),
            "groups": {"global": dice.choice((None, "colour", "thing"))},
            "types": {
                "structural": dice.choice(TYPES), "semantic": "rel", "detailed": dice.choice(("how", "twoCommon")),
            },
            "semantic": [{"operation": "select", "argument": "dog"}],
        }
        for one in ids
    }  # fmt: skip
    choices = {one: {kind: dice.sample(words, 6) for kind in ("valid", "plausible")} for one in ids}
    said: dict[str, str] = {one: dice.choice((record["answer"], dice.choice(words))) for one, record in records.items()}
    predictions = [{"questionId": one, "prediction": text} for one, text in said.items()]
    names = ("val_all_questions.json", "val_choices.json", "val_predictions.json")
    for name, value in zip(names, (records, choices, predictions), strict=True):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    official = printed(script, "--consistency", folder=folder)
    pairs = [
        (Example(one, "What is it?", (), "image", (record["answer"],), record=record), said[one])
        for one, record in records.items()
    ]
    ours = figures("gqa", "official", pairs, choices=folder / "val_choices.json")
    ours["accuracy"] = ours["balanced"]
    for name in ("accuracy", "consistency", "validity", "plausibility", "distribution"):
        yield name, official[name], round(ours[name] * (1 if name == "distribution" else 100), 2)


def vqa(script: Path, folder: Path) -> Iterator[Line]:
    """Accuracy of each question, to the hundredth of a percent that is kept."""
    del folder
    dice = random.Random(2)
    words = [word for word in WORDS if word]
    golds = {
        number: [dice.choice(words)] * 10 if number % 4 == 0 else dice.choices(dice.sample(words, 4), k=10)
        for number in range(2000)
    }
    said = {number: dice.choice((*WORDS, *answers)) for number, answers in golds.items()}

    class Answers:
        def __init__(self, qa: dict[int, dict[str, Any]]) -> None:
            self.qa = qa

        def getQuesIds(self) -> list[int]:
            return list(self.qa)

    source = re.sub(r"^(\s*)print (.+)$", r"\1print(\2)", script.read_text(encoding="utf-8"), flags=re.M)
    module: dict[str, Any] = {}
    exec(compile(source, str(script), "exec"), module)  # noqa: S102 - what the user gives, to be run
    truth = {
        number: {
            "answers": [{"answer": one, "answer_id": at} for at, one in enumerate(answers)],
            "question_type": "what", "answer_type": "other",
        }
        for number, answers in golds.items()
    }  # fmt: skip
    judge = module["VQAEval"](Answers(truth), Answers({number: {"answer": one} for number, one in said.items()}))
    with redirect_stdout(StringIO()):
        judge.evaluate()
    metric = metric_for("vqav2", "official")
    ours = {
        number: metric.score(Example(str(number), "?", (), "image", tuple(answers)), said[number])
        for number, answers in golds.items()
    }
    alike = sum(round(100 * (ours[number] or 0), 2) == score for number, score in judge.evalQA.items())
    yield "accuracy", judge.accuracy["overall"], round(100 * sum(one or 0 for one in ours.values()) / len(ours), 2)
    yield "questions scored alike", len(judge.evalQA), alike


def statements(dataset: str, script: Path, folder: Path) -> Iterator[Line]:
    """Accuracy and consistency."""
    dice = random.Random(3)
    if dataset == "nlvr":
        rows = [f"{n}-{m}" for n in range(120) for m in range(dice.randint(1, 4))]
        asked = [(row, f"dev-{row}-{k}.png") for row in rows for k in range(6)]
    else:
        rows = [f"test1-{n}-{pair}-{s}" for n in range(150) for pair in range(dice.randint(1, 4)) for s in range(2)]
        asked = [(row, row) for row in rows]
    labels = {row: dice.choice(("True", "False")) for row in rows}
    other = {"True": "false", "False": "true"}
    said = {name: other[labels[row]] if dice.random() < 0.1 else labels[row].lower() for row, name in asked}
    lines = [json.dumps({"identifier": row, "label": label}) for row, label in labels.items()]
    (folder / "gold.json").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "said.csv").write_text("".join(f"{name},{one}\n" for name, one in said.items()), encoding="utf-8")
    official = printed(script, "said.csv", "gold.json", folder=folder)
    pairs = [(Example(name, "?", (), "set", (labels[row],)), said[name]) for row, name in asked]
    ours = figures(dataset, "", pairs)
    yield "accuracy", official.get("accuracy", official.get("precision", float("nan"))), ours["accuracy"]
    yield "consistency", official["consistency"], ours["consistency"]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gqa", "vqa", "nlvr", "nlvr2"):
        parser.add_argument(f"--{name}", type=Path, metavar="SCRIPT")
    scripts: dict[str, Path] = {name: one for name, one in vars(parser.parse_args()).items() if one}
    if missing := [str(one) for one in scripts.values() if not one.is_file()]:
        parser.error(f"no script at {', '.join(missing)}")
    print("| data set | figure | official script | ours |\n|---|---|---|---|")
    differ = False
    for name, script in scripts.items():
        with tempfile.TemporaryDirectory() as folder:
            made = {"gqa": gqa, "vqa": vqa}.get(name)
            lines = made(script, Path(folder)) if made else statements(name, script, Path(folder))
            for figure, official, ours in lines:
                differ |= abs(official - ours) > 1e-9
                print(f"| {name} | {figure} | {official:g} | {ours:g} |")
    sys.exit(int(differ))


if __name__ == "__main__":
    main()
