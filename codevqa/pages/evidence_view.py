"""Evidence as the templates need it: heat maps drawn, captions beside the patches they saw, scores as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.images import Picture
from ..core.trace import Evidence
from ..primitives.signature import GRID
from .heat import overlay, patch_view, peak_place, relevance_grid
from .pictures import PictureView, data_uri, picture_name, picture_of, picture_view
from .words import chance, number

__all__ = ["EvidenceView", "evidence_view"]

HEAT_SIDE = 480
"""Longest side of a heat map, in pixels."""
PATCH_SIDE = 144
THUMB = 160
MOST_CAPTIONS = 24
"""Captions of one picture that are shown with their patches; further ones are shown as text."""

_LOGITS = ("gradcam", "itm")
"""Kinds whose scores are the logit of a match, and read as its probability."""
_MODELS_NAMES = {
    "gradcam": "image-text matching (ITM), logit",
    "itm": "image-text matching (ITM), logit",
    "itc": "image-text contrast (ITC), cosine",
    "detection": "score of each box",
}
_SCALES = {"itc": "100 is the closest match, −100 the farthest"}


@dataclass(frozen=True)
class Caption:
    """One caption, and the patches that its captioner saw."""

    text: str
    patches: PictureView | None


@dataclass(frozen=True)
class Look:
    """One picture with what was seen in it."""

    label: str
    picture: PictureView
    captions: tuple[Caption, ...]
    note: str
    position: str = ""
    place: str = ""
    """The position in words."""
    drawn: bool = False
    """Whether a map or a position is drawn on it."""
    mapped: bool = False
    """Whether it carries a heat map, which then needs its scale."""


@dataclass(frozen=True)
class ScoreBar:
    """One score as a bar; places in percent of the track."""

    label: str
    shown: str
    title: str
    """The score as the model gives it."""
    left: float
    width: float
    best: bool
    picture: PictureView | None


@dataclass(frozen=True)
class EvidenceView:
    """What is drawn of one piece of evidence."""

    looks: tuple[Look, ...]
    bars: tuple[ScoreBar, ...]
    scores: str
    scores_title: str
    """The same as the models give it."""


def evidence_view(evidence: Evidence, pictures: Sequence[Picture]) -> EvidenceView:
    """Returns one piece of evidence; a kind that is not known is shown by what it holds."""
    scored = bool(evidence.scores) and len(evidence.scores) == len(evidence.images) and not evidence.relevance
    looks = tuple(_look(evidence, place, pictures) for place in range(len(evidence.images)))
    return EvidenceView(
        looks=() if scored else looks,
        bars=_bars(evidence, pictures) if scored else (),
        scores=_SCALES.get(evidence.kind, "") if scored else _scores(evidence),
        scores_title="" if scored else _raw(evidence.kind, evidence.scores),
    )


def _look(evidence: Evidence, place: int, pictures: Sequence[Picture]) -> Look:
    ref = evidence.images[place]
    picture = picture_of(ref, pictures)
    relevance = evidence.relevance[place] if place < len(evidence.relevance) else ()
    position = evidence.position if place == 0 else None
    grid = relevance_grid(relevance)
    label = picture_name(ref, pictures)
    captions = _captions(evidence, place, picture, None if grid is None else (grid.shape[0], grid.shape[1]), label)
    if grid is None and position is None:
        flat = "The map shows no relevance anywhere." if relevance else ""
        return Look(label, picture_view(ref, pictures, HEAT_SIDE), captions, flat)
    drawn = data_uri(overlay(picture, relevance, HEAT_SIDE, positions=[position] if position else []))
    about = f" for “{evidence.text}”" if evidence.text else ""
    alt = f"Heat map over {label}{about}: most relevant at {peak_place(relevance)}"
    if grid is None:
        alt = f"Position marked in {label}{about}"
    return Look(
        label,
        PictureView(drawn, alt, label),
        captions,
        "" if picture else "The picture itself is not at hand: the map alone.",
        f"x = {number(position[0])}, y = {number(position[1])}" if position else "",
        _place(position) if position else "",
        drawn=True,
        mapped=grid is not None,
    )


def _place(position: tuple[float, float]) -> str:
    x, y = position
    across = "left" if x < GRID / 3 else "right" if x > 2 * GRID / 3 else "middle"
    up = "lower" if y < GRID / 3 else "upper" if y > 2 * GRID / 3 else "middle"
    where = "the middle" if across == up else f"{up} {across}"
    return f"{where}, on a {GRID}×{GRID} grid counted from the bottom left"


def _captions(
    evidence: Evidence, place: int, picture: Picture | None, grid: tuple[int, int] | None, label: str
) -> tuple[Caption, ...]:
    captions = evidence.captions[place] if place < len(evidence.captions) else ()
    subsets = evidence.patches[place] if place < len(evidence.patches) else ()
    found = []
    for index, text in enumerate(captions):
        subset = subsets[index] if index < len(subsets) else ()
        view = None
        if grid and subset and index < MOST_CAPTIONS:
            drawn = data_uri(patch_view(picture, subset, grid, PATCH_SIDE), quality=70)
            view = PictureView(
                drawn, f"The {len(subset)} of {grid[0] * grid[1]} patches of {label} it was drawn from", ""
            )
        found.append(Caption(text, view))
    return tuple(found)


def _bars(evidence: Evidence, pictures: Sequence[Picture]) -> tuple[ScoreBar, ...]:
    known = [score for score in evidence.scores if math.isfinite(score)]
    low, high = min([0.0, *known]), max([0.0, *known])
    reach = (high - low) or 1.0
    # Of equal scores the first is taken, as the primitive does.
    best = evidence.scores.index(max(known)) if known else None
    bars = []
    for place, (ref, score) in enumerate(zip(evidence.images, evidence.scores, strict=True)):
        drawn = score if math.isfinite(score) else 0.0
        small = picture_view(ref, pictures, THUMB)
        bars.append(
            ScoreBar(
                picture_name(ref, pictures),
                _shown(evidence.kind, score),
                _raw(evidence.kind, [score]),
                round(100 * (min(0.0, drawn) - low) / reach, 2),
                round(100 * abs(drawn) / reach, 2),
                place == best,
                small if small.uri else None,
            )
        )
    return tuple(bars)


def _scores(evidence: Evidence) -> str:
    if not evidence.scores:
        return ""
    if evidence.kind == "detection":
        return f"confidence in each box: {', '.join(map(chance, evidence.scores))}"
    if evidence.kind in _LOGITS:
        return f"match: {', '.join(chance(_probability(score)) for score in evidence.scores)}"
    return f"scores: {', '.join(map(number, evidence.scores))}"


def _shown(kind: str, score: float) -> str:
    """A score as visitors read it."""
    if kind == "itc":
        return f"match {100 * score:.1f}".replace("-", "−")
    return f"match {chance(_probability(score))}" if kind in _LOGITS else f"{score:.4f}"


def _raw(kind: str, scores: Sequence[float]) -> str:
    return f"{_MODELS_NAMES[kind]}: {', '.join(f'{score:.4f}' for score in scores)}" if kind in _MODELS_NAMES else ""


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-min(max(logit, -50.0), 50.0))) if math.isfinite(logit) else logit
