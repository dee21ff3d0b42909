"""VQA accuracy on VQAv2 and OK-VQA: the share of three annotators who agree, in each of its published variants.

Sources: Antol et al., ICCV 2015; Goyal et al., CVPR 2017; Marino et al., CVPR 2019. For each accepted answer in turn
the prediction is held against the other nine and scores min(1, matches / 3); the mean over the ten is the score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ..task import Example
from . import text
from .base import Metric

Reader: TypeAlias = Callable[[str, Sequence[str]], tuple[str, Sequence[str]]]
"""Takes a prediction and the accepted answers and returns both as they are compared."""


def leave_one_out(prediction: str, golds: Sequence[str]) -> float:
    """Returns the mean over accepted answers of min(1, matches among the others / 3): 3 of 10 agree is 0.9."""
    same = sum(prediction == gold for gold in golds)
    others = same * min(1.0, (same - 1) / 3) + (len(golds) - same) * min(1.0, same / 3)
    return others / len(golds)


def _official(prediction: str, golds: Sequence[str]) -> tuple[str, Sequence[str]]:
    prediction, golds = text.no_breaks(prediction), [text.no_breaks(gold) for gold in golds]
    if len(set(golds)) == 1:
        return prediction, golds  # the script leaves both sides alone when all annotators agree
    return text.release(prediction), [text.release(gold) for gold in golds]


def _lower(prediction: str, golds: Sequence[str]) -> tuple[str, Sequence[str]]:
    return _official(prediction.lower(), [gold.lower() for gold in golds])


def _lavis(prediction: str, golds: Sequence[str]) -> tuple[str, Sequence[str]]:
    if len(set(golds)) > 1:
        golds = [text.punctuation(gold) for gold in golds]
    return text.release(prediction), golds


def _both(rewrite: Callable[[str], str]) -> Reader:
    return lambda prediction, golds: (rewrite(prediction), [rewrite(gold) for gold in golds])


Variants: TypeAlias = Mapping[str, tuple[str, Reader]]
"""Name and reader by variant."""
VQAV2_VARIANTS: Variants = {
    "": ("VQA accuracy (official 2021, lower-cased)", _lower),
    "official": ("VQA accuracy (official 2021)", _official),
    "lavis": ("VQA accuracy (LAVIS)", _lavis),
    "lmms": ("VQA accuracy (lmms-eval)", _both(text.lmms_vqa)),
    "release": ("VQA accuracy (paper's release)", _lavis),
}
OKVQA_VARIANTS: Variants = {
    **VQAV2_VARIANTS,
    "lmms": ("VQA accuracy (lmms-eval, EvalAI)", _both(text.evalai)),
    "stem": (
        "VQA accuracy (prediction and answers stemmed)",
        lambda prediction, golds: (text.release(prediction), golds),
    ),
}


class VQAMetric(Metric):
    """VQA accuracy; where a question has fewer than ten answers, whether the prediction is one of them.

    Args:
        variant: "" is "official" with both sides in lower case, since the script scores a capitalised answer 0
            where all annotators agree; "official" rewrites both sides unless they all agree; "lavis" always rewrites
            the prediction and of the answers only the punctuation; "lmms" always rewrites both; "release" scores
            as "lavis" does. OK-VQA also has "stem": the prediction, rewritten and stemmed with Porter's
            algorithm, against the stemmed answers of the file. All others compare with the answers as given.
        variants: the variants of the data set.
    """

    answers = 10

    def __init__(self, variant: str, variants: Variants) -> None:
        self.name, self._read = variants[variant]
        self._stem = text.porter() if variant == "stem" else None

    def agreement(self, example: Example, prediction: str) -> float:
        """Returns 0 to 1, as :func:`leave_one_out`; of fewer than ten answers, 1 where one of them is said, else 0."""
        if self._stem is None:
            text, golds = self._read(prediction, example.gold)
        else:
            text, golds = self._read(prediction, _stems(example) or [self._stem(gold) for gold in example.gold])
            text = self._stem(text)
        return leave_one_out(text, golds) if len(golds) >= self.answers else float(text in golds)


def _stems(example: Example) -> list[str]:
    """Returns the stemmed answers of OK-VQA's file; nothing where it has those as given only."""
    answers = example.record.get("answers") or ()
    if not all(isinstance(answer, Mapping) and {"raw_answer", "answer"} <= answer.keys() for answer in answers):
        return []
    return [str(answer["answer"]) for answer in answers]
