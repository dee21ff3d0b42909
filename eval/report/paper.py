"""What the paper reports, to set ours beside: numbers of other and larger models, which ours do not reproduce.

Subramanian et al., "Modular Visual Question Answering via Code Generation", ACL 2023: exact match of few-shot PnP-VQA
and of CodeVQA, both with OpenAI's Codex and BLIP large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NOTE = "the paper's own figures. Its models were others (Codex and BLIP large), so do not compare them with ours"

DRAWN = "The paper asks about photographs, and this run about drawn pictures: neither predicts the other"


@dataclass(frozen=True)
class Reported:
    """Accuracy of both methods on one data set, as shares of 1."""

    split: str
    n: int
    """Questions of that split."""
    pnpvqa: float
    codevqa: float
    key: str = ""
    """Of the groups it reports on; empty for kinds of questions."""
    columns: tuple[str, ...] = ()
    """What it reports on them."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The cells of those columns by the value that an example has."""


_SHARES = {
    "1": ("75.0 %", "91.7 %"),
    "2": ("53.3 %", "51.5 %"),
    "3": ("48.7 %", "48.3 %"),
    "4": ("53.2 %", "47.0 %"),
    "5": ("53.4 %", "46.9 %"),
}
_GAINS = {"spatial": ("+30",), "and": ("+4",), "or": ("+3",)}
PAPER: Mapping[str, Reported] = {
    "gqa": Reported("testdev_balanced", 12_578, 0.4656, 0.4903, "", ("Paper's gain, about",), _GAINS),
    "covr": Reported(
        "test_paraphrased", 7_024, 0.4906, 0.5411, "images", ("Paper's CodeVQA", "Paper's PnP-VQA"), _SHARES
    ),
    "nlvr2": Reported("test1", 6_967, 0.6337, 0.6404),
}
