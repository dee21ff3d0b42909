"""What a reader of a report sees of methods, groups of questions and figures."""

from __future__ import annotations

from collections.abc import Mapping

METHOD_LABELS: Mapping[str, str] = {"codevqa": "CodeVQA", "direct": "Direct", "pnpvqa": "PnP-VQA"}
"""What a reader sees of a method."""
GROUP_LABELS: Mapping[str, str] = {
    "structural": "type of question",
    "semantic": "subject of question",
    "detailed": "detailed type of question",
    "open": "open or binary",
    "words": "words in the question",
    "steps": "reasoning steps",
    "spatial": "spatial relation",
    "spatial_final": "spatial relation in the last step",
    "and": "joined by and",
    "or": "joined by or",
    "images": "number of pictures",
    "pictures": "number of pictures",
    "needles": "pictures that matter",
    "kind": "kind of question",
    "pattern": "pattern of question",
}
"""What a reader sees of the keys of groups that data sets have."""
FIGURE_LABELS: Mapping[str, str] = {
    "balanced": "accuracy on balanced questions",
    "distribution": "distance of answer distributions (smaller is better)",
}
"""What a reader sees of a figure about the whole run."""
MEANINGS: Mapping[str, str] = {
    "distribution": 'GQA\'s "distribution" compares how often each answer is given with how often it is right, within '
    "groups of questions (chi-square, over 100). 0 means equally often; smaller is better.",
}
"""What figures mean that are no shares."""


def group_label(key: str, dataset: str) -> str:
    """Returns what a reader sees of a group's key, such as ``reasoning steps``; fields of own questions keep theirs."""
    own = dataset == "own" and key not in ("images", "pictures")
    return key.replace("_", " ") if own else GROUP_LABELS.get(key, key.replace("_", " "))


def figure_label(name: str) -> str:
    """Returns what a reader sees of a figure about the whole run."""
    return FIGURE_LABELS.get(name, name.replace("_", " "))


def pair_label(pair: str) -> str:
    """Writes ``CodeVQA − Direct`` for ``codevqa-direct``."""
    return " − ".join(METHOD_LABELS[method] for method in pair.split("-"))
