"""What the models of a preset know: how the pictures look that they learnt from, and the words they have met.

Outside of that they answer all the same, and as surely as ever. A domain is one small file beside the weights, made by
``mini/training/domain.py``: a logistic regression over statistics of a picture, and a list of words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from ..core.errors import ImageError
from ..core.images import Picture
from ..core.trace import DomainWarning, ImageRef

FILE = "domain.json"
PICTURE = "known.png"
"""What the models know, drawn and named."""
SIDE = 128
"""Longest side of a picture as it is looked at, in pixels."""
STEPS = (1, 3, 6, 12, 24, 48, 96)
"""What parts one size of difference between pixels from the next."""
BLOCK = 8
"""Side of the blocks whose flatness counts, in pixels."""
COMMONEST = (1, 2, 4, 8, 16, 32)
"""So many of the commonest colours; what share of a picture they cover counts."""
SHORT = 3
"""Words of fewer letters are not looked up: they are what is left of others ("it'll")."""
SPELT = 4
"""Words of fewer letters are near to too many others to be taken for one with a wrong letter."""
ALIKE = 0.8
"""How alike two words must be for one to be the other, spelt wrongly: one letter of five, and not of four."""
NAMED = 5
"""Pictures that a message names; more are counted."""
_SHORTENED = ("t", "s", "re", "ve", "ll")
"""What stands behind an apostrophe: "arent" is "aren't", of which the list has "aren"."""
_SIZE = np.searchsorted(STEPS, np.arange(511), side="right")
"""The size of each difference; of second ones, too."""


@dataclass(frozen=True)
class Domain:
    """What some models know."""

    about: str
    """What that is, and what to do about the rest."""
    weights: npt.NDArray[np.float64]
    """One for each of :func:`features`."""
    bias: float
    """Together they are positive for pictures of another kind."""
    words: frozenset[str]
    others: frozenset[str]
    """Words that are not known, and not known ones spelt wrongly either, though they look it."""
    knows: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What they learnt to see, such as kinds of things and colors, each by its name."""
    questions: Sequence[str] = ()
    """Some that they can answer."""
    picture: Path | None = None
    """A picture of what they know, with words."""
    seen: npt.NDArray[np.float64] | None = None
    """Weights and bias for what the matcher makes of a picture (its ``summaries``); together positive for drawings of
    another kind. None where the matcher is another."""

    @classmethod
    def load(cls, folder: str | Path) -> Domain:
        """Reads the domain in a folder of weights."""
        picture = Path(folder) / PICTURE
        data = json.loads((Path(folder) / FILE).read_text(encoding="utf-8"))
        words, others = frozenset(data["words"]), frozenset(data["others"])
        knows, questions = data.get("knows", {}), data.get("try", ())
        weights, known = np.array(data["weights"]), picture if picture.is_file() else None
        seen = np.array(data["seen"]) if "seen" in data else None
        return cls(data["about"], weights, data["bias"], words, others, knows, questions, known, seen)

    def is_of_another_kind(self, summary: npt.NDArray[np.float32]) -> bool:
        """Says whether the matcher sees a drawing of another kind than it learnt from."""
        return self.seen is not None and float(summary @ self.seen[:-1] + self.seen[-1]) > 0

    def check(
        self, pictures: Sequence[Picture], question: str, others: Collection[int] = ()
    ) -> tuple[DomainWarning, ...]:
        """Says what lies outside: first of the pictures, then of the question's words.

        Args:
            pictures: what is asked about.
            question: what is asked.
            others: numbers of pictures, from 1, that are of another kind, as the matcher sees them.
        """
        name = f"domain {self.bias:.9g}"  # of another training it is another number
        images = tuple(
            ImageRef(n) for n, source in enumerate(pictures, 1) if n in others or self._is_outside(source, name)
        )
        unknown: dict[str, str] = {}
        spelt: dict[str, str] = {}
        for word in dict.fromkeys(words_in(question)):
            if len(word) >= SHORT and word not in self.words:
                near = self.near(word)
                (spelt if near else unknown)[word] = near
        warnings = []
        if images:
            many = f"{len(images):,} of {len(pictures):,} images"
            named = [
                f"{image} ({file})" if (file := pictures[image.index - 1].name) else str(image) for image in images
            ]
            shown = f"I{', '.join(named)[1:]}" if len(images) <= NAMED else many
            verb = "looks" if len(images) == 1 else "look"
            message = f"{shown} {verb} unlike what these models know: {self.about}"
            warnings.append(DomainWarning("picture", message, images))
        if unknown:
            about = "." if images else f": {self.about}"  # which is said once
            message = f"These models don't know {_quote_words(unknown)}{about}"
            if self.questions and not images:
                message += f" Try {' or '.join(map(repr, self.questions))}."
            message += " What they know: codevqa models." if self.knows and not images else ""
            warnings.append(DomainWarning("words", message, words=tuple(unknown)))
        if spelt:
            message = f"These models don't know {_quote_words(spelt)}."
            warnings.append(DomainWarning("spelling", message, words=tuple(spelt)))
        return tuple(warnings)

    def respell(self, question: str) -> str:
        """Returns a question with the known words that were probably meant in the place of those spelt wrongly."""

        def meant(typed: re.Match[str]) -> str:
            word = typed[0].lower()
            known = word in self.words or len(word) < SHORT
            return typed[0] if known else self.near(word) or typed[0]

        return re.sub(r"[^\W\d_]+", meant, question)

    def _is_outside(self, picture: Picture, name: str) -> bool:
        try:
            return picture.measure(name, self.score) > 0
        except ImageError:  # its file changed; whoever looks at it is told
            return False

    def score(self, pixels: Image.Image) -> float:
        """Returns how unlike what the models know a picture is: positive where it is of another kind."""
        return float(features(pixels) @ self.weights + self.bias)

    def near(self, word: str) -> str:
        """Returns the word that was probably meant; empty where none is near."""
        if word in self.others or len(word) < SHORT:
            return ""
        for end in _SHORTENED:
            if (rest := word.removesuffix(end)) != word and rest in self.words:
                return f"{rest}'{end}"
        swapped = [word[:n] + word[n + 1] + word[n] + word[n + 2 :] for n in range(len(word) - 1)]
        close = get_close_matches(word, self.words, 1, ALIKE) if len(word) >= SPELT else []
        near = close or [meant for meant in swapped if meant in self.words]
        return near[0] if near else ""


def words_in(text: str) -> list[str]:
    """Returns the words of a text in small letters, without numbers and marks."""
    return re.findall(r"[^\W\d_]+", text.lower())


def features(pixels: Image.Image) -> npt.NDArray[np.float64]:
    """Returns what tells drawings from photographs: how flat a picture is, and of how many and which colours."""
    # Each so manieth pixel first: photographs have millions, and averaging those takes longer than all the rest.
    small = _at_most(_at_most(pixels, 4 * SIDE, Image.Resampling.NEAREST), SIDE, Image.Resampling.BOX)
    colors = np.ascontiguousarray(np.asarray(small, dtype=np.int16).transpose(2, 0, 1))
    steps = [np.abs(np.diff(colors, axis=axis)) for axis in (1, 2)]
    bends = [np.abs(np.diff(colors, n=2, axis=axis)) for axis in (1, 2)]
    high, wide = (side // BLOCK for side in colors.shape[1:])
    blocks = colors[:, : high * BLOCK, : wide * BLOCK].reshape(3, high, BLOCK, wide, BLOCK)
    ranges = blocks.max(axis=(2, 4)) - blocks.min(axis=(2, 4))
    shares = [
        *(_sizes(differences) for differences in (steps, bends, [ranges])),
        _color_coverage(colors),
        _shades(colors),
    ]
    return np.sqrt(np.concatenate(shares))


def _sizes(differences: Sequence[npt.NDArray[np.int16]]) -> npt.NDArray[np.float64]:
    """Returns which share of differences is of each size; of the three colours the one that differs most counts."""
    largest = np.concatenate([difference.max(axis=0, initial=0).ravel() for difference in differences])
    return _shares(_SIZE[largest], len(STEPS) + 1)


def _color_coverage(colors: npt.NDArray[np.int16]) -> npt.NDArray[np.float64]:
    red, green, blue = colors >> 4
    shares = np.sort(_shares((red << 8 | green << 4 | blue).ravel(), 1))[::-1]
    return np.array([shares[:count].sum() for count in COMMONEST])


def _shades(colors: npt.NDArray[np.int16]) -> npt.NDArray[np.float64]:
    """Returns the share of each brightness and vividness, in four levels."""
    levels = colors >> 6
    bright = levels.max(axis=0)
    return _shares((4 * bright + bright - levels.min(axis=0)).ravel(), 16)


def _shares(values: npt.NDArray[np.integer], count: int) -> npt.NDArray[np.float64]:
    return np.bincount(values, minlength=count) / max(1, values.size)


def _at_most(pixels: Image.Image, side: int, how: Image.Resampling) -> Image.Image:
    scale = side / max(pixels.size)
    if scale >= 1:
        return pixels
    width, height = (max(1, round(length * scale)) for length in pixels.size)
    return pixels.resize((width, height), how)


def _quote_words(words: Mapping[str, str]) -> str:
    """Returns words, each with the one that was probably meant."""
    return " or ".join(f"'{word}' (did you mean '{near}'?)" if near else f"'{word}'" for word, near in words.items())
