"""What tests of failures share: an engine whose parts may fail, and what a process holds."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from codevqa import CodeVQA, Limits, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.core.trace import Form
from codevqa.models.base import LanguageModel
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.prompts import PromptSet, load

RED = Image.new("RGB", (60, 40), "red")


def engine(writer: LanguageModel, reader: LanguageModel | None = None, **settings: Any) -> CodeVQA:
    """Returns an engine over real prompts, sandbox and batches, and a language model that may fail."""
    prompts: dict[Form, PromptSet] = {"image": load("gqa"), "set": load("covr")}
    used = Settings(query=QuerySettings(captions=2, patches=5, shots=1), limits=Limits(seconds=0.5), workers=2)
    models = Models(reader or ScriptedLM(" yes\n", name="reader"), FakeMatcher(6), FakeCaptioner(grid=6))
    written = WriterSettings(selection="fixed", shots=2, repairs=0)
    return CodeVQA(Writer(writer, prompts, settings=written), models, Settings(**{**vars(used), **settings}))


@dataclass(frozen=True)
class Held:
    """What a process holds of the system."""

    processes: frozenset[int]
    descriptors: int

    @property
    def others(self) -> int:
        """Descriptors beside the three pipes of each worker."""
        return self.descriptors - 3 * len(self.processes)


def children(process: int | str = "self") -> frozenset[int]:
    """Returns the children of a process."""
    found: set[int] = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end while they are listed
            found.update(map(int, (task / "children").read_text().split()))
    return frozenset(found)


def held(process: int | str = "self") -> Held:
    """Returns what a process holds now, once what nobody refers to is gone."""
    gc.collect()
    return Held(children(process), len(list(Path(f"/proc/{process}/fd").iterdir())))


def resident(process: int | str = "self") -> float:
    """Returns the resident memory of a process in MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
