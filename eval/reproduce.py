"""From a data set to the paper's table: what that takes, and our figures beside the paper's."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ..core.errors import InputError
from ..presets.checkpoints import missing
from ..presets.configuration import Configuration
from ..prompts import PromptSet, load
from .report.figures import RunFigures
from .report.paper import NOTE, reported
from .report.reading import metric_of, summary_of
from .report.table import aligned
from .report.tables import breakdown, result
from .run.store import Store
from .task import DataSet

SPLITS: Mapping[str, str] = MappingProxyType({"gqa": "testdev_balanced", "covr": "test_paraphrased", "nlvr2": "test1"})
"""The splits that the paper reports, by data set."""
ANSWERED: Mapping[str, str] = MappingProxyType(
    {
        "covr": "COVR's own test.jsonl has no answers: put test_paraphrased.json of the paper's authors beside it "
        "(https://github.com/sanjayss34/codevqa says where their data are), or ask --split val."
    }
)
"""Which file has answers, for data sets that keep back those of the split."""
OURS = "not the release's, which --release FOLDER takes: only its wording, numbers and scoring are followed"
RATES: Mapping[str, float] = MappingProxyType({"gqa": 5.9, "covr": 3.6, "nlvr2": 5.7})
"""Questions a second, asked by both methods, on one H200 with a language model of 1.5B parameters beside BLIP large
(docs/reports/reproduce.md)."""


@dataclass(frozen=True)
class Plan:
    """What a reproduction will take."""

    dataset: str
    split: str
    questions: int
    unanswered: int
    """Questions without a gold answer."""
    prompts: PromptSet
    pictures: int
    absent: tuple[str, ...]
    """Pictures that are not there."""
    parts: tuple[tuple[str, str, str], ...]
    """Role, ``back end:id`` and what it lacks on this machine, for each model."""
    free: int
    """Bytes free where the run is kept."""


def plan(dataset: DataSet, configuration: Configuration, out: Path, limit: int | None = None) -> Plan:
    """Reads the data set and the prompt set through and looks for the models. Loads and fetches no model.

    Raises:
        InputError: a file of the data set or of the prompt set is damaged.
    """
    prompts = load(configuration.settings.prompts or dataset.prompts)
    files: dict[tuple[str, str], bool] = {}
    questions = unanswered = 0
    for example in itertools.islice(dataset, limit):
        questions += 1
        unanswered += not example.gold
        for image in example.images:
            key = (str(image.path), image.member)
            if key not in files:
                files[key] = image.path.is_file()
    absent = tuple(member or path for (path, member), here in files.items() if not here)
    parts = tuple((role, spec, missing(spec)) for role, spec in configuration.parts.items())
    place = next(folder for folder in (out.absolute(), *out.absolute().parents) if folder.exists())
    return Plan(
        dataset=dataset.name,
        split=dataset.split,
        questions=questions,
        unanswered=unanswered,
        prompts=prompts,
        pictures=len(files),
        absent=absent,
        parts=parts,
        free=shutil.disk_usage(place).free,
    )


def require_answers(found: Plan) -> None:
    """Refuses a run whose table would be empty.

    Raises:
        InputError: no question has an answer to be scored by.
    """
    if found.questions and found.unanswered == found.questions:
        raise InputError(
            f"No question of {found.dataset} {found.split} has an answer: the table would be empty.",
            hint=ANSWERED.get(found.dataset, "Give another --split."),
        )


def plan_lines(found: Plan) -> list[str]:
    """Returns a plan for a terminal."""
    absent = f"{len(found.absent):,} of them missing, first {found.absent[0]}" if found.absent else "all of them here"
    lines = [f"{found.dataset} {found.split}: {found.questions:,} questions on {found.pictures:,} pictures, {absent}"]
    paper = reported(found.dataset)
    if paper is not None and found.questions != paper.n:
        lines.append(f"the paper asked {paper.n:,}, of {paper.split}")
    if found.unanswered:
        where = ANSWERED.get(found.dataset, "")
        lines.append(f"{found.unanswered:,} questions have no answer and will not be scored. {where}".rstrip())
    prompts = found.prompts
    lines.append(f"prompts: {prompts.name}, {len(prompts.examples)} programs, {len(prompts.reading)} reading examples")
    lines.append(f"  {prompts.about if prompts.wording == 'release' else OURS}")
    lines += aligned([(role, lacks or "here", spec) for role, spec, lacks in found.parts])
    hours = found.questions / RATES[found.dataset] / 3600
    lines.append(f"disk: {found.free / 1e9:.0f} GB free for the run, of which a question takes about 20 kB")
    lines.append(f"time: about {hours:.1f} hours on one H200 with a language model of 1.5B; larger ones take longer")
    return lines


def table_lines(store: Store) -> list[str]:
    """Returns the run's figures beside the paper's, whole and by group."""
    found = RunFigures("", store, store.info, store.pace(), metric_of(store.info), summary_of(store))
    groups = breakdown(found.info, found.summary)
    beside = (table for table in groups if any(name.startswith("Paper's") for name in table.head))
    lines: list[str] = []
    for table in (result([found]), *beside):
        lines += [*(["", table.title] if table.title else []), *aligned([table.head, *table.rows])]
    return [*lines, "", f"Paper: {NOTE}."]
