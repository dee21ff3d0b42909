"""What the paper reports, to set ours beside: numbers of other and larger models, which ours do not reproduce.

Subramanian et al., "Modular Visual Question Answering via Code Generation", ACL 2023: exact match of few-shot PnP-VQA
and of CodeVQA, both with OpenAI's Codex and BLIP large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["DRAWN", "NOTE", "PAPER", "Reported", "reported"]

NOTE = "reported by the paper, with other models (Codex and BLIP large): for orientation, not a comparison"

DRAWN = "the paper's questions are about photographs, these about drawn pictures: neither figure tells of the other"


@dataclass(frozen=True)
class Reported:
    """Accuracy of both methods on one data set, as shares of 1."""

    split: str
    n: int
    """Questions of that split."""
    pnpvqa: float
    codevqa: float
    groups: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)
    """Accuracy of PnP-VQA and CodeVQA by group and value, under the names an example's groups have."""
    gains: Mapping[str, float] = field(default_factory=dict)
    """About how much CodeVQA gains on a group of which no more is reported."""

    @property
    def difference(self) -> float:
        """What CodeVQA gains over PnP-VQA."""
        return self.codevqa - self.pnpvqa


PAPER: Mapping[str, Reported] = {
    "gqa": Reported("testdev_balanced", 12_578, 0.4656, 0.4903, gains={"spatial": 0.30, "and": 0.04, "or": 0.03}),
    "covr": Reported(
        "test_paraphrased",
        7_024,
        0.4906,
        0.5411,
        groups={
            "images": {
                "1": (0.917, 0.750),
                "2": (0.515, 0.533),
                "3": (0.483, 0.487),
                "4": (0.470, 0.532),
                "5": (0.469, 0.534),
            }
        },
    ),
    "nlvr2": Reported("test1", 6_967, 0.6337, 0.6404),
}


def reported(dataset: str) -> Reported | None:
    """Returns what the paper reports on a data set; None for one it does not."""
    return PAPER.get(dataset)
