"""Evidence as the templates need it: heat maps drawn, captions beside the patches they saw, scores as bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..core.images import Picture
from ..core.selection import logistic
from ..core.trace import Evidence, ImageRef
from ..primitives.signature import GRID
from .heat import box_percent, overlay, patch_view, peak_place, place_words, relevance_grid, spot
from .many import LARGE, TILES
from .pictures import PictureView, data_uri, picture_name, picture_of, picture_view
from .words import chance, format_number

HEAT_SIDE = 480
"""Longest side of a heat map, in pixels."""
PATCH_SIDE = 144
THUMB = 160
MOST_CAPTIONS = 24
"""Captions of one picture that are shown with their patches; further ones are shown as text."""

_SCORES = {
    "gradcam": ("match", "image-text matching (ITM), logit"),
    "itm": ("match", "image-text matching (ITM), logit"),
    "itc": ("match", "image-text contrast (ITC), cosine"),
    "detection": ("confidence in each box", "score of each box"),
    "select": ("yes:", "chance of yes"),
    "ruled_out": ("match", "image-text contrast (ITC), cosine"),
    "eyes": ("sure of", "probability of each choice"),
}
"""What the scores of a kind are to a reader, and to the models."""


def evidence_view(evidence: Evidence, pictures: Sequence[Picture]) -> dict[str, Any]:
    """Returns what a template shows of one piece of evidence.

    Where each picture has a score, these are ``bars``. Elsewhere each picture is one of ``looks``, and the scores are a
    line of text. Titles hold the scores as the models give them. A kind that is not known is shown by what it holds.
    """
    evidence, rest = _cut_off(evidence)
    scores = evidence.scores
    if (
        scores
        and len(scores) == len(evidence.images)
        and not evidence.relevance
        and evidence.kind != "corrected"
        and not (evidence.boxes or evidence.choices)
    ):
        scale = "100 is the closest match, −100 the farthest" if evidence.kind == "itc" else ""
        return {"looks": (), "bars": _bars(evidence, pictures), "scores": scale, "title": "", "rest": rest}
    looks = [_evidence_picture(evidence, place, ref, pictures) for place, ref in enumerate(evidence.images)]
    label = _SCORES.get(evidence.kind, ("scores", ""))[0]
    caption = f"{label}: {_scores(evidence.kind, scores)}" if scores else ""
    if evidence.kind == "detection" and not scores:
        caption = "nothing was found"
    if evidence.kind == "corrected":
        caption = "yes" if scores == (1.0,) else "no"
    if evidence.choices:
        caption = ", ".join(
            f"{choice} {chance(score)}" for choice, score in zip(evidence.choices, scores, strict=False)
        )
    return {"looks": looks, "bars": (), "scores": caption, "title": _raw(evidence.kind, scores), "rest": rest}


def _cut_off(evidence: Evidence) -> tuple[Evidence, int]:
    """Returns evidence about no more pictures than a page shows, the highest scores first; and how many it lacks."""
    count = len(evidence.images)
    if count <= TILES:
        return evidence, 0
    scores = [score if math.isfinite(score) else -math.inf for score in evidence.scores]
    order = sorted(range(count), key=lambda place: -scores[place] if len(scores) == count else 0)[:TILES]
    several = ("images", "captions", "relevance", "patches", "scores")
    whole = {name: values for name in several if len(values := getattr(evidence, name)) == count}
    cut: dict[str, Any] = {name: tuple(values[place] for place in order) for name, values in whole.items()}
    return replace(evidence, **cut), count - TILES


def _evidence_picture(evidence: Evidence, place: int, ref: ImageRef, pictures: Sequence[Picture]) -> dict[str, Any]:
    """Returns one picture, its map drawn on it and its position marked, with the captions read from it."""
    relevance = evidence.relevance[place] if place < len(evidence.relevance) else ()
    grid = relevance_grid(relevance)
    side = HEAT_SIDE if len(evidence.images) <= LARGE else THUMB
    view, note = picture_view(ref, pictures, side), ""
    label = view.alt
    if grid is not None:
        picture = picture_of(ref, pictures)
        note = "" if picture else "The picture is missing, so the map is shown alone."
        about = f"{label} for “{evidence.text}”" if evidence.text else label
        alt = f"Heat map over {about}: most relevant at {peak_place(grid)}"
        view = PictureView(data_uri(overlay(picture, grid, side)), alt)
    elif relevance:
        note = "The map shows no relevance anywhere."
    where: tuple[str, ...] = ()
    if place == 0 and evidence.position is not None and all(map(math.isfinite, evidence.position)):
        x, y = evidence.position
        counted = f"{place_words(x / GRID, 1 - y / GRID)}, on a {GRID}×{GRID} grid counted from the bottom left"
        where = f"x = {format_number(x)}, y = {format_number(y)}", counted
    return {
        "label": label,
        "picture": view,
        "note": note,
        "position": where,
        "spot": spot(evidence.position) if where and evidence.position else (),
        "boxes": list(map(box_percent, evidence.boxes)) if place == 0 else [],
        "mapped": grid is not None,
        "captions": _captions(evidence, place, ref, pictures, None if grid is None else (grid.shape[0], grid.shape[1])),
    }


def _captions(
    evidence: Evidence, place: int, ref: ImageRef, pictures: Sequence[Picture], grid: tuple[int, int] | None
) -> list[tuple[str, PictureView | None]]:
    """Returns the captions of one picture, each with the patches that its captioner saw."""
    captions = evidence.captions[place] if place < len(evidence.captions) else ()
    subsets = evidence.patches[place] if place < len(evidence.patches) else ()
    views: list[tuple[str, PictureView | None]] = []
    for index, text in enumerate(captions):
        subset = subsets[index] if index < min(len(subsets), MOST_CAPTIONS) else ()
        view = None
        if grid and subset:
            name = picture_name(ref, pictures)
            drawn = data_uri(patch_view(picture_of(ref, pictures), subset, grid, PATCH_SIDE), quality=70)
            view = PictureView(
                drawn, f"The {len(subset)} of {math.prod(grid)} patches of {name} that this caption was read from"
            )
        views.append((text, view))
    return views


def _bars(evidence: Evidence, pictures: Sequence[Picture]) -> list[dict[str, Any]]:
    """Returns one bar a picture, in percent of the track."""
    known = [score for score in evidence.scores if math.isfinite(score)]
    low, high = min([0.0, *known]), max([0.0, *known])
    reach = (high - low) or 1.0
    # Of equal scores the first is taken, as the primitive does.
    best = evidence.scores.index(max(known)) if known and evidence.kind not in ("select", "ruled_out") else None
    bars = []
    for place, (ref, score) in enumerate(zip(evidence.images, evidence.scores, strict=True)):
        drawn = score if math.isfinite(score) else 0.0
        bar = {
            "label": picture_name(ref, pictures),
            "shown": f"{_SCORES.get(evidence.kind, ('', ''))[0]} {_scores(evidence.kind, [score])}".strip(),
            "title": _raw(evidence.kind, [score]),
            "left": round(100 * (min(0.0, drawn) - low) / reach, 2),
            "width": round(100 * abs(drawn) / reach, 2),
            "best": place == best,
            "picture": picture_view(ref, pictures, THUMB),
        }
        bars.append(bar)
    return bars


def _scores(kind: str, scores: Sequence[float]) -> str:
    """Scores as visitors read them: a logit as the probability of a match."""
    if kind in ("gradcam", "itm"):
        scores = [logistic(score) if math.isfinite(score) else score for score in scores]
    if kind in ("itc", "ruled_out"):
        return ", ".join(f"{100 * score:.1f}" for score in scores).replace("-", "−")
    return ", ".join(map(chance if kind in _SCORES else format_number, scores))


def _raw(kind: str, scores: Sequence[float]) -> str:
    return f"{_SCORES[kind][1]}: {', '.join(f'{score:.4f}' for score in scores)}" if kind in _SCORES else ""
