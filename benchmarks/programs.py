"""Measures how often a language model's programs for real questions do what a careful annotator's programs do.

    python benchmarks/programs.py LANGUAGE_MODEL RETRIEVER --nlvr2 data/dev.json --arms words both both+12 both+12x7

No picture is looked at: both programs run in the same random worlds (codevqa.writing.worlds), and agreement is the
share of worlds in which they give the same answer. Wordings differ and annotators slip, so 100 % is out of reach:
compare two ways to ask a model, not a model with perfection. A figure here says nothing about how well models see.

An arm is RETRIEVAL[+SHOTS][xPROGRAMS]: how examples are found, how many are shown, and among how many programs one is
chosen. The gold programs of ``benchmarks/gold`` are in no bank of examples. Those of NLVR2 are for sentences of its dev
split, which stay in its own file. The questions for GQA and COVR are ours, in the forms of those data sets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image as PILImage

from codevqa.core.errors import CodeVQAError
from codevqa.core.images import load_picture
from codevqa.core.question_kind import question_kind
from codevqa.core.trace import REFUSED, Form, Program
from codevqa.engine.answers import fitted_answer
from codevqa.eval.statistics import compare_scores, mean
from codevqa.models.protocols import Completion, GenerationRequest, LanguageModel
from codevqa.models.retrieval import Retriever
from codevqa.presets.assembly import load, prompt_sets
from codevqa.presets.presets import preset
from codevqa.primitives.kinds import Image
from codevqa.sandbox.sandbox import Sandbox
from codevqa.writing.choice import judge_drafts, try_out
from codevqa.writing.writer import Writer

GOLD = Path(__file__).with_name("gold")
PICTURES = {"gqa": 1, "covr": 5, "nlvr2": 2}
"""Pictures of a question of each set."""
SEEDS = (101, 102)
"""Worlds in which programs are compared with gold; the choice among programs has others."""
BATCH = 512


@dataclass(frozen=True)
class Arm:
    """One way to have programs written."""

    name: str
    retrieval: Any
    shots: int | None
    programs: int

    @classmethod
    def parse(cls, name: str) -> Arm:
        """Reads RETRIEVAL[+SHOTS][xPROGRAMS].

        Raises:
            ValueError: it is something else.
        """
        match = re.fullmatch(r"(words|structure|both)(?:\+(\d+))?(?:x(\d+))?", name)
        if match is None:
            raise ValueError(f"An arm is words, structure or both, then +SHOTS, then xPROGRAMS, not {name!r}.")
        shots = match[2]
        return cls(name, match[1], int(shots) if shots else None, int(match[3] or 1))


@dataclass(frozen=True)
class GoldQuestion:
    """A question with its gold program."""

    id: str
    set: str
    kind: str
    question: str
    program: str

    @property
    def form(self) -> Form:
        """The form of its programs."""
        return "image" if self.set == "gqa" else "set"


def read_gold(nlvr2: Path | None) -> list[GoldQuestion]:
    """Reads the gold programs; those of NLVR2 only where its sentences are."""
    questions = []
    for name in PICTURES:
        if name == "nlvr2" and nlvr2 is None:
            continue
        rows = [json.loads(line) for line in (GOLD / f"{name}.jsonl").read_text().splitlines()]
        if name == "nlvr2" and nlvr2 is not None:
            sentences = {row["identifier"]: row["sentence"] for row in map(json.loads, nlvr2.read_text().splitlines())}
            rows = [row | {"question": sentences[row["id"]]} for row in rows]
        questions += [GoldQuestion(row["id"], name, row["kind"], row["question"], row["program"]) for row in rows]
    return questions


class Together:
    """Asks a language model all that an expected number of writers want, at once."""

    def __init__(self, model: LanguageModel, expected: int) -> None:
        self._model = model
        self._expected = expected
        self._waiting: list[tuple[GenerationRequest, asyncio.Future[Completion]]] = []

    async def __call__(self, request: GenerationRequest) -> Completion:
        """Returns the completion of one request."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        if len(self._waiting) == self._expected:
            for at in range(0, self._expected, BATCH):
                some = self._waiting[at : at + BATCH]
                for (_, pending), completion in zip(
                    some, self._model.generate([pending for pending, _ in some]), strict=True
                ):
                    pending.set_result(completion)
        return await future


@cache
def blank_images(count: int) -> tuple[Image, ...]:
    """Returns pictures that nobody looks at."""
    picture = load_picture(PILImage.new("RGB", (8, 8)))
    return tuple(Image(number, picture) for number in range(1, count + 1))


async def write_drafts(
    writers: Mapping[tuple[str, str], Writer], model: LanguageModel, asked: Sequence[GoldQuestion], arms: Sequence[Arm]
) -> dict[tuple[str, str], list[str]]:
    """Returns the drafts for each arm and question."""
    jobs = [(arm, question, draft) for arm in arms for question in asked for draft in range(arm.programs)]
    generate = Together(model, len(jobs))
    programs = await asyncio.gather(
        *(
            writers[arm.retrieval, question.set].write(
                question.question, question.form, generate, shots=arm.shots, draft=draft
            )
            for arm, question, draft in jobs
        )
    )
    drafts: dict[tuple[str, str], list[str]] = {}
    for (arm, question, _), program in zip(jobs, programs, strict=True):
        drafts.setdefault((arm.name, question.id), []).append(program.source)
    return drafts


async def compare_with_gold(question: GoldQuestion, drafts: Sequence[str], sandbox: Sandbox) -> dict[str, Any]:
    """Chooses among drafts, and compares the chosen with gold."""
    images, kind = (
        blank_images(PICTURES[question.set]),
        question_kind(question.question, statements=question.form == "set"),
    )

    def fit_answer(value: object) -> str:
        return fitted_answer(value, question.question, kind)

    trials = await try_out(drafts, sandbox, images, fit_answer)
    chosen = next(
        candidate for candidate in judge_drafts([Program(source) for source in drafts], trials) if candidate.chosen
    )
    both = [await try_out([question.program, chosen.source], sandbox, images, fit_answer, seed) for seed in SEEDS]
    pairs = [zip(*(trial.behaviour for trial in pair), strict=True) for pair in both]
    worlds = [(gold, mine) for pair in pairs for gold, mine in pair if gold is not None]
    return {
        "set": question.set,
        "kind": question.kind,
        "id": question.id,
        "question": question.question,
        "source": chosen.source,
        "agreement": chosen.agreement,
        "fault": chosen.fault,
        "runs": all(mine is not None for _, mine in worlds),
        "agrees": sum(gold == mine for gold, mine in worlds) / len(worlds),
    }


async def measure_arms(
    model: LanguageModel, retriever: Retriever, asked: Sequence[GoldQuestion], arms: Sequence[Arm]
) -> dict[str, list[dict[str, Any]]]:
    """Writes programs in several ways, and returns for each a row a question."""
    base = preset("base")
    writers = {
        (way, name): Writer(model, prompt_sets(base, name), retriever, replace(base.settings.writer, retrieval=way))
        for way in {arm.retrieval for arm in arms}
        for name in {question.set for question in asked}
    }
    drafts = await write_drafts(writers, model, asked, arms)
    served = {name: writer.primitives for (_, name), writer in writers.items()}
    async with AsyncExitStack() as stack:
        sandboxes = {name: await stack.enter_async_context(Sandbox(known)) for name, known in served.items()}
        return {
            arm.name: [
                await compare_with_gold(question, drafts[arm.name, question.id], sandboxes[question.set])
                for question in asked
            ]
            for arm in arms
        }


def arm_table(rows: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields the table: for each arm and set how many programs run or are refused, and how far they agree with gold."""
    base = next(iter(rows))
    for arm, all_of in rows.items():
        for name in (*PICTURES, "all"):
            first, mine = ([row for row in some if name in (row["set"], "all")] for some in (rows[base], all_of))
            if not mine:
                continue
            agrees = [row["agrees"] for row in mine]
            runs = sum(row["runs"] for row in mine) / len(mine)
            refused = sum(row["fault"] in REFUSED for row in mine)
            line = f"{arm:16} {name:6} runs {runs:.3f}  refused {refused}  agrees {mean(agrees)}"
            if arm != base:
                line += f"  against {base}: {compare_scores(agrees, [row['agrees'] for row in first])}"
            yield line


def main() -> None:
    """Parses the arguments, measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language_model", help="as in a preset, e.g. transformers:FOLDER")
    parser.add_argument("retriever", help="as in a preset, e.g. sentence:FOLDER")
    parser.add_argument("--nlvr2", type=Path, help="dev.json of NLVR2; without it GQA and COVR alone")
    parser.add_argument("--arms", nargs="+", type=Arm.parse, default=[Arm.parse("words")])
    parser.add_argument("--out", type=Path, help="file for the programs, one JSON object a line")
    options = parser.parse_args()
    try:
        model, retriever = load("language_model", options.language_model), load("retriever", options.retriever)
    except CodeVQAError as error:
        parser.error(str(error))
    rows = asyncio.run(measure_arms(model, retriever, read_gold(options.nlvr2), options.arms))
    print("\n".join(arm_table(rows)))
    if options.out:
        records = [{"arm": arm, **row} for arm, some in rows.items() for row in some]
        options.out.write_text("".join(json.dumps(row) + "\n" for row in records))


if __name__ == "__main__":
    main()
