"""What a run is: everything that decides what it finds, and what may change when one goes on with it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from ...core.trace import Method
from ...presets.configuration import flatten_tables
from ...presets.identity import FREE as UNCHANGING

DECIDING = ("dataset", "split", "preset", "models", "prompts", "prompt_hash", "offset", "data_hash")
"""Fields of :class:`RunInfo` that must be the same in whatever belongs to a run."""
FREE = UNCHANGING | {"prompts"}
"""Settings that change how fast a run goes, or name what :attr:`RunInfo.prompt_hash` tells apart."""


@dataclass(frozen=True)
class RunInfo:
    """Everything that decides what a run finds, and where and when it began."""

    dataset: str
    split: str
    methods: tuple[Method, ...]
    preset: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model id by role."""
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By role, how the model was loaded: ``spec`` (``back end:id``), ``options``, what it ``computes`` in and on, and
    the SHA-256 of each file of its ``weights``."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """:class:`codevqa.Settings` as plain data."""
    prompts: str = ""
    """Name of the prompt set, or ``image: name, set: name``."""
    prompt_hash: str = ""
    """SHA-256 over everything the prompt sets show a model."""
    seeds: tuple[int, ...] = (0,)
    """Seed of each repetition of caption sampling."""
    offset: int = 0
    """Examples left out at the start of the data set."""
    limit: int | None = None
    """Examples wanted after those; None wants all."""
    questions: int | None = None
    """Examples in that range; None where that is not known, as in runs from before it was counted."""
    ends: bool | None = None
    """Whether the split ends with them."""
    part: tuple[str, ...] = ()
    """Why the data set as it was asked is not the official split, such as that it is a sample."""
    variant: str = ""
    """Variant of the metric that summaries use."""
    version: str = ""
    """Version of this package that began the run."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the libraries that compute, as far as they are loaded."""
    started: str = ""
    """When it began, ISO 8601 in UTC."""
    machine: str = ""
    data: str = ""
    """Absolute paths of the files the data set was read from, with commas between."""
    data_hash: str = ""
    """What the annotations looked like; see :func:`.provenance.data_hash`."""
    drawn: bool = False
    """Whether ``codevqa mini-data`` drew the data set, in the other's format."""

    @property
    def data_name(self) -> str:
        """The data set as a reader should take it."""
        return f"mini-{self.dataset.upper()} (drawn)" if self.drawn else self.dataset

    @property
    def sources(self) -> tuple[Path, ...]:
        """The files the data set was read from."""
        return tuple(Path(path) for path in re.split(r", (?=/|\w:[\\/])", self.data) if path)

    @property
    def unofficial(self) -> str:
        """Why its figures are not those of the official split; empty where they are, as far as that is known."""
        words = list(self.part)
        if self.offset or self.ends is False or (self.ends is None and self.limit is not None):
            last = "" if self.questions is None else f" to {self.offset + self.questions:,}"
            words.append(f"only questions {self.offset + 1:,}{last or ' and some after it'}")
        return "; ".join(words)

    @property
    def chart_warning(self) -> str:
        """Why figures of direct are in doubt: its model fails the chart, or was shown more than that allows."""
        chart, query = str(self.settings.get("chart", "")), self.settings.get("query", {})
        if "direct" not in self.methods:
            return ""
        words = (
            [f"The model that direct asks fails its chart of {chart.replace(': fails', ':', 1)}."]
            if ": fails" in chart
            else []
        )
        if query.get("over_limit") and query.get("pictures") is not None:
            words.append(
                f"Direct was shown more than the {query['pictures']} pictures at once that the chart saw answered."
            )
        return " ".join(words)

    @property
    def chart_note(self) -> str:
        """Date and result of the chart of what answers about pictures; empty where it has no eyes."""
        none = "none: 'codevqa doctor' shows whether the model looks at each picture" if "eyes" in self.models else ""
        return str(self.settings.get("chart", "")) or none

    @property
    def flat_settings(self) -> dict[str, Any]:
        """The settings under dotted names, such as ``query.captions``."""
        return flatten_tables(self.settings)

    def differences(self, asked: RunInfo) -> list[str]:
        """Says what keeps ``asked`` from going on with this run; empty where nothing does.

        Limits, methods and seeds may grow; the metric's variant, the machine and settings that only change the pace
        may differ. What is unknown of either, as of runs from before it was noted, is no difference.
        """
        was, now = self._deciding(), asked._deciding()
        shared = [(name, was[name], now[name]) for name in was if name in now]
        changes = [f"{name} was {_short_repr(old)}, now {_short_repr(new)}" for name, old, new in shared if old != new]
        if any(old != new for old, new in zip(self.seeds, asked.seeds, strict=False)):
            changes.append(f"seeds were {list(self.seeds)}, now {list(asked.seeds)}")
        return changes

    def _deciding(self) -> dict[str, Any]:
        """Returns what decides what a run finds, as far as it is known: choices, versions, precision, weights."""
        versions: dict[str, Any] = {"codevqa": self.version, **self.packages}
        for role, part in self.parts.items():
            versions[f"{role}.computes"] = str(part.get("computes", "")).partition(":")[0]  # whichever GPU it is
            versions |= {f"{role}.weights {file}": digest for file, digest in part.get("weights", {}).items()}
        settings = {name: value for name, value in self.flat_settings.items() if name not in FREE}
        return {
            **{name: getattr(self, name) for name in DECIDING},
            **{f"settings.{name}": value for name, value in settings.items()},
            **{name: value for name, value in versions.items() if value},
        }

    def grown(self, asked: RunInfo) -> RunInfo:
        """Returns this run with what ``asked`` adds to it: examples, methods and repetitions."""
        methods = self.methods + tuple(method for method in asked.methods if method not in self.methods)
        seeds = max(self.seeds, asked.seeds, key=len)
        narrower = asked.limit is not None and (self.limit is None or asked.limit < self.limit)
        wider = self if narrower else asked
        reach = {name: getattr(wider, name) for name in ("limit", "questions", "ends")}
        return replace(self, **reach, methods=methods, seeds=seeds, variant=asked.variant)

    def to_json(self) -> str:
        """Returns the info as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Reads what :meth:`to_json` wrote; unknown fields are left out.

        Raises:
            ValueError: it is no such thing.
        """
        return TypeAdapter(cls).validate_json(text, strict=True)


@dataclass(frozen=True)
class RunPace:
    """How much sessions of a run asked in what time."""

    questions: int
    seconds: float

    @property
    def rate(self) -> float | None:
        """Questions a second; None where nothing was asked."""
        return self.questions / self.seconds if self.questions and self.seconds else None


def _short_repr(value: Any) -> str:
    text = str(value)
    return repr(value) if len(text) <= 60 else repr(text[:24] + "...")
