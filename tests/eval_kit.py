"""A small data set, and engines that are fake or answer at once, for tests of the evaluation harness."""

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from engine_kit import engine
from PIL import Image

from codevqa import CodeVQA, Models, QuerySettings, Settings, WriterSettings
from codevqa.eval import Store
from codevqa.eval.task import DatasetPicture, Example, Row
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import Eyes, GenerationRequest

PROGRAM = 'img = open_image("Image3.jpg")\nanswer = query(img, "Is it red?")'


class Numbered:
    """A data set of ``count`` questions about one picture in ``folder``; the gold answer of each is yes."""

    name = "gqa"
    split = "val"
    prompts = "gqa"

    def __init__(self, folder: Path, count: int, question: str = "Is thing {} red?") -> None:
        self.folder, self.count, self.question = folder, count, question
        self.picture = folder / "picture.png"
        if not self.picture.exists():
            folder.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (32, 24), "red").save(self.picture)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Example]:
        for number in range(self.count):
            picture, question = DatasetPicture(self.picture), self.question.format(number)
            groups = {"parity": "even" if number % 2 == 0 else "odd"}
            record = {"number": number, "nested": [1, {"a": None}]}
            yield Example(
                f"{number:06}", question, (picture,), "image", ("yes",), groups, cluster=str(number // 2), record=record
            )


class Broken(Numbered):
    """Some pictures cannot be read, and one question is empty."""

    def __iter__(self) -> Iterator[Example]:
        for example in super().__iter__():
            if example.id == "000001":
                example = dataclasses.replace(example, images=(DatasetPicture(self.folder / "missing.png"),))
            if example.id == "000002":
                (self.folder / "text.png").write_text("no picture")
                example = dataclasses.replace(example, images=(DatasetPicture(self.folder / "text.png"),))
            if example.id == "000003":
                example = dataclasses.replace(example, question=" ")
            if example.id == "000004":
                example = dataclasses.replace(example, images=example.images * 2)
            yield example


def fake_engine(
    program: str | Callable[[GenerationRequest], str] = PROGRAM,
    read: str | Callable[[GenerationRequest], str] = " yes\n",
    *,
    workers: int = 4,
    seed: int = 0,
    captions: int = 2,
    name: str = "writer",
    eyes: Eyes | None = None,
    blip: bool = True,
) -> CodeVQA:
    """Returns an engine whose captions name their seed, with eyes or in their place; programs run in real sandboxes."""
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    reader = ScriptedLM(read, name="reader")
    models = Models(reader, FakeMatcher(6), captioner, eyes=eyes) if blip else Models(reader, eyes=eyes)
    query, writer = QuerySettings(captions=captions, patches=5, shots=1), WriterSettings(selection="fixed", shots=2)
    settings = Settings(query=query, writer=writer, workers=workers, seed=seed)
    return engine(ScriptedLM(program, name=name), models=models, settings=settings)


def environment() -> dict[str, str]:
    """The environment of a script that imports from this folder."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "HF_HUB_OFFLINE": "1"}


def asked(store: Store) -> list[tuple[str, str, int]]:
    """Which question each row answers, by which method, in which repetition."""
    return [(row.id, row.method, row.repeat) for key in store.counts() for row in store.rows(*key)]


def timeless(store: Store) -> list[Row]:
    """Every row without what a clock says."""

    def plain(row: Row) -> Row:
        calls = [{**call, "seconds": 0} for call in row.trace.get("calls", ())]
        cost = {**row.trace.get("cost", {}), "model_seconds": 0, "program_seconds": 0}
        return dataclasses.replace(row, seconds=0, trace={**row.trace, "calls": calls, "cost": cost})

    return [plain(row) for key in sorted(store.counts()) for row in store.rows(*key)]
