"""Which pictures an answer about many rests on, read off its trace: those that count, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .trace import Call, Evidence, ImageRef, Trace


@dataclass(frozen=True)
class Pick:
    """One picture, and how probable it is that the answer to what was asked about it is yes."""

    image: ImageRef
    chance: float


@dataclass(frozen=True)
class Selection:
    """The pictures for which one question was answered yes."""

    question: str
    """What each picture was asked."""
    picked: tuple[Pick, ...]
    """Those that count, the surest first."""
    others: tuple[Pick, ...] = ()
    """Those that do not, the least sure first."""
    low: int = 0
    """With ``high`` the range that holds the true number in nine of ten cases."""
    high: int = 0
    ruled_out: int = 0
    """Pictures among the others that were not looked at closely: their contrastive score was too low."""
    unread: tuple[ImageRef, ...] = ()
    """Pictures whose file was gone or had changed when it was looked at, or of which the model said neither yes nor
    no: they may be either, and widen the range."""
    left: int = 0
    """Pictures that were not reached before the budget ended."""

    @property
    def count(self) -> int:
        """How many count."""
        return len(self.picked)

    @property
    def unsure(self) -> tuple[Pick, ...]:
        """Pictures to check first: those whose chance is nearest to one half, of either kind."""
        doubtful = [pick for pick in (*self.picked, *self.others) if SURE > pick.chance > 1 - SURE]
        return tuple(sorted(doubtful, key=lambda pick: abs(pick.chance - 0.5)))


SURE = 0.95
"""Chance from which a picture is not worth checking."""
MATCH = (-3.60, 1.30)
"""Intercept and weight of a matcher's logit: the chance that a description holds. Fitted on 11,000 pairs of drawn
pictures with descriptions, and of NLVR's boxes, with the matcher of ``mini`` (benchmarks/collection.py)."""
READ = 0.67
"""Chance that an answer is right that was read from captions, or given by a model that tells no chances. Measured on
the pictures of the same runs of which matching is not sure."""
COUNTED = 0.82
"""Chance that a number above zero is right that image-text matching counted."""
AGREED, AGREED_NUMBER = 0.98, 0.89
"""Chance that an answer is right that another look confirms, at other captions and without matching; a number takes
two. The latter is for numbers that were read from captions each time. All were measured on 250 drawn pictures."""
HELD = 0.9
"""Share of cases in which the true number lies in the range."""


def selections(trace: Trace) -> tuple[Selection, ...]:
    """Returns what a program selected, in its order: the calls of ``select`` and ``count`` over lists, and the yes/no
    questions that were asked about each of several pictures.

    Chances are fitted on drawn pictures and their models (``benchmarks/collection.py calibration``). Of others they
    give the order, and a rough idea.
    """
    results: list[Selection] = []
    asked: dict[str, dict[ImageRef, Call]] = {}
    for call in trace.calls:
        if call.error is not None:
            continue
        if call.name in ("select", "count") and any(evidence.kind == "select" for evidence in call.evidence):
            results.append(_call_selection(call))
        picture, question = call.arguments.get("img"), call.arguments.get("question")
        if call.name in ("query", "visual_query") and isinstance(picture, ImageRef) and isinstance(question, str):
            if question not in asked:
                asked[question] = {}
                results.append(Selection(question, ()))  # holds its place
            asked[question].setdefault(picture, call)
    whole = [
        _loop_selection(selection.question, asked[selection.question]) if selection.question in asked else selection
        for selection in results
    ]
    return tuple(selection for selection in whole if selection is not None)


def chance_of_yes(answer: str, evidence: Sequence[Evidence]) -> float:
    """Returns how probable it is that the answer to a yes/no question about one picture is yes.

    It is one half or more where the answer is yes, and less where it is no. Of the evidence the last counts.
    """
    right = READ
    last = evidence[-1] if evidence else None
    if last is not None and last.kind == "corrected":
        return last.scores[0]
    if last is not None and last.kind == "itm" and last.scores:
        right = match_probability(last.scores)
    elif last is not None and last.kind == "eyes" and answer in last.choices:
        right = last.scores[last.choices.index(answer)]
    right = min(max(right, 0.5), 1.0)
    return right if answer == "yes" else min(1 - right, 0.499)


def match_probability(logits: Sequence[float]) -> float:
    """Returns how probable it is that what image-text matching says of descriptions is right."""
    first, weight = MATCH
    holds = [logistic(first + weight * logit) for logit in logits]
    sure = [
        max(chance, 0.5) if logit > 0 else max(1 - chance, 0.5) for logit, chance in zip(logits, holds, strict=True)
    ]
    if len({logit > 0 for logit in logits}) == 1:
        return math.prod(sure)  # each of them had to hold, or not to
    return min(sure[-2:])  # the last decided, beside the one before


def logistic(logit: float) -> float:
    """Returns the probability that a logit stands for."""
    return 1 / (1 + math.exp(-min(max(logit, -50.0), 50.0)))


def number_range(chances: Sequence[float]) -> tuple[int, int]:
    """Returns the smallest range that holds the number of those that are true with :data:`HELD` probability.

    The number is Poisson-binomial: each is true by its own chance, independent of the others. Chances beyond .001 and
    .999 are taken for certain.
    """
    import numpy as np

    certain = sum(chance >= 0.999 for chance in chances)
    likely = np.ones(1)
    for chance in chances:
        if 0.001 < chance < 0.999:
            likely = np.convolve(likely, (1 - chance, chance))
    below = np.concatenate(([0.0], np.cumsum(likely)))
    ends = np.searchsorted(below, below[:-1] + HELD - 1e-12)  # of the shortest range that begins at each place
    starts = [place for place, end in enumerate(ends) if end < len(below)]
    low = min(starts, key=lambda place: (ends[place] - place, -(below[ends[place]] - below[place])))
    return certain + low, certain + int(ends[low]) - 1


def _call_selection(call: Call) -> Selection:
    by_kind = {evidence.kind: evidence for evidence in call.evidence}
    seen, out = by_kind["select"], by_kind.get("ruled_out", Evidence("ruled_out"))
    unread, left = (by_kind.get(kind, Evidence(kind)).images for kind in ("unread", "left"))
    picks = [Pick(ref, chance) for ref, chance in zip(seen.images, seen.scores, strict=True)]
    picks += [Pick(ref, 0.0) for ref in out.images]
    split = _split(seen.text, picks)
    high = split.high + len(unread)
    return replace(split, high=high, ruled_out=len(out.images), unread=unread, left=len(left))


def _loop_selection(question: str, calls: Mapping[ImageRef, Call]) -> Selection | None:
    """Returns what a loop selected; None where it asked one picture alone, or for more than yes or no."""
    whole = len({ref.index for ref in calls}) == len(calls) > 1
    if not whole or any(call.value not in ("yes", "no") for call in calls.values()):
        return None
    return _split(question, [Pick(ref, chance_of_yes(call.value, call.evidence)) for ref, call in calls.items()])


def _split(question: str, picks: Sequence[Pick]) -> Selection:
    surest = sorted(picks, key=lambda pick: (-pick.chance, pick.image.index))
    picked = tuple(pick for pick in surest if pick.chance >= 0.5)
    low, high = number_range([pick.chance for pick in picks])
    return Selection(question, picked, tuple(surest[len(picked) :]), low, high)
