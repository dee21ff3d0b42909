"""What a run is: everything that decides what it finds, and what may change when one goes on with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ...core.kind_check import check_kind
from ..task import Method

__all__ = ["RunInfo"]

FREE = frozenset(("limit", "methods", "seeds", "variant", "version", "started", "machine", "data"))
"""Fields of :class:`RunInfo` that ``differences`` leaves out, or that may grow."""
PACE = frozenset(("workers", "batch_wait", "max_batch", "remember", "ahead", "ahead_likely"))
"""Settings that change how fast a run goes, and not what it finds."""


@dataclass(frozen=True)
class RunInfo:
    """Everything that decides what a run finds, and where and when it began."""

    dataset: str
    split: str
    methods: tuple[Method, ...]
    preset: str = ""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model id by role."""
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
    variant: str = ""
    """Variant of the metric that summaries use."""
    version: str = ""
    """Version of this package that began the run."""
    started: str = ""
    """When it began, ISO 8601 in UTC."""
    machine: str = ""
    data: str = ""
    """Folder the data set was read from."""
    data_hash: str = ""
    """What the annotations looked like; see :func:`codevqa.eval.run.provenance.data_hash`."""

    def differences(self, asked: RunInfo) -> list[str]:
        """Says what keeps ``asked`` from going on with this run; empty where nothing does.

        Limits, methods and seeds may grow; the metric's variant, the machine and settings that only change the pace
        may differ.
        """
        found = []
        for one in fields(self):
            mine, other = getattr(self, one.name), getattr(asked, one.name)
            if one.name == "settings":
                flat, theirs = _flat(mine), _flat(other)
                names = [name for name in {**flat, **theirs} if name not in PACE]
                pairs = [(f"settings.{name}", flat.get(name), theirs.get(name)) for name in names]
            elif one.name in FREE:
                continue
            else:
                pairs = [(one.name, mine, other)]
            found += [f"{name} was {_short(old)}, now {_short(new)}" for name, old, new in pairs if old != new]
        shared = min(len(self.seeds), len(asked.seeds))
        if self.seeds[:shared] != asked.seeds[:shared]:
            found.append(f"seeds were {list(self.seeds)}, now {list(asked.seeds)}")
        return found

    def grown(self, asked: RunInfo) -> RunInfo:
        """Returns this run with what ``asked`` adds to it: examples, methods and repetitions."""
        limit = None if self.limit is None or asked.limit is None else max(self.limit, asked.limit)
        methods = self.methods + tuple(one for one in asked.methods if one not in self.methods)
        seeds = max(self.seeds, asked.seeds, key=len)
        return replace(self, limit=limit, methods=methods, seeds=seeds, variant=asked.variant or self.variant)

    def to_json(self) -> str:
        """Returns the info as one line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> RunInfo:
        """Reads what :meth:`to_json` wrote; unknown fields are left out.

        Raises:
            ValueError: it is no such thing, or TypeError, KeyError or another error of reading (``DAMAGE``).
        """
        known = {one.name for one in fields(cls)}
        data = {name: value for name, value in json.loads(text).items() if name in known}
        for name in ("methods", "seeds"):
            data[name] = tuple(data[name])
        info = cls(**data)
        check_kind(info, cls, "info")
        return info


def _flat(settings: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Returns nested settings under dotted names."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{before}{name}.")
        else:
            flat[before + name] = list(value) if isinstance(value, tuple) else value  # as it comes back from JSON
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return repr(value) if len(text) <= 60 else repr(text[:24] + "...")
