"""BLIP's tokens: texts into word pieces and back, and drawing the tokens of captions.

A caption's numbers come from its seed alone, one for each step, so that it does not depend on its batch. The token is
found by inverting the cumulative distribution in the order of the vocabulary: exact sampling, for which a change of
rounding in the logits matters only when the number falls within that rounding of a boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import BertWordPieceTokenizer, Tokenizer, decoders

from ..weights import read_json

_TIDY = (
    *((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m")),
    *((" 's", "'s"), (" 've", "'ve"), (" 're", "'re")),
)
"""What decoding puts in the place of what."""


class WordPieces:
    """The tokenizer of a BERT.

    Args:
        folder: holds ``tokenizer.json``, or ``vocab.txt`` and perhaps ``tokenizer_config.json``.

    Raises:
        OSError, ValueError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._tokenizer: Any = _read_tokenizer(folder)
        # A user's text may spell "[SEP]": it stays text.
        self._tokenizer.encode_special_tokens = True
        self.vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        self.pad, self.end = self._special("[PAD]"), self._special("[SEP]")
        self._tokenizer.enable_padding(pad_id=self.pad, pad_token="[PAD]")
        self._tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
        added = self._tokenizer.get_added_tokens_decoder()
        self._silent = {number for number, token in added.items() if token.special}
        self._silent |= {self.vocabulary[token] for token in _OWN if token in self.vocabulary}

    def encode(self, texts: Sequence[str], most: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns tokens, (texts, tokens), [CLS] first and [SEP] last, and a mask: 1 for tokens, 0 for padding.

        Args:
            texts: the texts.
            most: tokens that are kept of each, [CLS] and [SEP] included; None keeps all.
        """
        self._tokenizer.no_truncation() if most is None else self._tokenizer.enable_truncation(most)
        rows = self._tokenizer.encode_batch(list(texts))
        return torch.tensor([row.ids for row in rows]), torch.tensor([row.attention_mask for row in rows])

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text, without blanks at its ends; special tokens and those it does not know say nothing."""
        text_tokens = [token for token in tokens if token not in self._silent]
        text: str = self._tokenizer.decode(text_tokens)
        for before, after in _TIDY:
            text = text.replace(before, after)
        return text.strip()

    def _special(self, token: str) -> int:
        if token not in self.vocabulary:
            raise ValueError(f"its tokenizer has no {token}")
        return self.vocabulary[token]


_OWN = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _read_tokenizer(folder: Path) -> Any:
    if (folder / "tokenizer.json").is_file():
        return Tokenizer.from_file(str(folder / "tokenizer.json"))
    settings = folder / "tokenizer_config.json"
    small = read_json(settings).get("do_lower_case", True) if settings.is_file() else True
    return bert_tokenizer(folder / "vocab.txt", lowercase=bool(small))


def bert_tokenizer(vocabulary: Path, *, lowercase: bool = True) -> Any:
    """Returns the tokenizer of a BERT, by its ``vocab.txt``.

    Raises:
        OSError, ValueError: the file cannot be read, or is not one.
    """
    words = vocabulary.read_text(encoding="utf-8").splitlines()
    numbers = {word.strip(): number for number, word in enumerate(words)}
    lacking = [token for token in _OWN if token not in numbers]
    if lacking:
        raise ValueError(f"{vocabulary} has no {lacking[0]}")
    return BertWordPieceTokenizer(numbers, lowercase=lowercase)._tokenizer


_GREEDY = -1.0
_TIES = 78
"""Candidates beyond the top k that are looked at because they may tie with the last of them."""


@dataclass(frozen=True)
class CaptionRules:
    """What captions begin with, how long they are and how they are drawn."""

    prompt: tuple[int, ...]
    end: int
    """Token that ends a caption."""
    pad: int
    """Token that follows the end."""
    min_length: int
    """Fewest tokens of a caption, the prompt's included."""
    max_length: int
    """Most tokens, the prompt's included."""
    top_k: int
    temperature: float

    @property
    def steps(self) -> int:
        """Tokens drawn for a caption at most."""
        return self.max_length - len(self.prompt)

    @property
    def first_end(self) -> int:
        """The first step, from 0, that may draw the end."""
        return max(0, self.min_length - len(self.prompt))


def numbers_of(seeds: Sequence[int | None], steps: int) -> torch.Tensor:
    """Returns the numbers in [0, 1) of each row, float64, (rows, steps); -1 in rows without a seed: they are greedy."""
    numbers = np.full((len(seeds), steps), _GREEDY)
    for row, seed in enumerate(seeds):
        if seed is not None:
            numbers[row] = np.random.Generator(np.random.PCG64(seed % 2**64)).random(steps)
    return torch.from_numpy(numbers)


def draw(logits: torch.Tensor, numbers: torch.Tensor, top_k: int, temperature: float) -> torch.Tensor:
    """Draws a token a row from the softmax over its ``top_k`` likeliest; ties with the last of them all stay.

    A large vocabulary is searched once, for so many candidates and 78 more; the rest happens among those. Should still
    more tie with the last, the CPU looks at all; a GPU, which cannot tell without waiting, leaves those beyond out.

    Args:
        logits: (rows, vocabulary).
        numbers: in [0, 1), float64, (rows, 1); below 0 takes the likeliest token, the first of several.
        top_k: tokens drawn among.
        temperature: divides the logits.

    Returns:
        Tokens, (rows,).
    """
    vocabulary = logits.shape[-1]
    top_k = min(top_k, vocabulary)
    if vocabulary <= top_k + _TIES:
        return _invert_shares(logits, logits.topk(top_k).values[:, -1:], numbers, temperature)
    top = logits.topk(top_k + _TIES)
    least = top.values[:, top_k - 1, None]
    if not logits.is_cuda and bool((top.values[:, -1:] >= least).any()):
        return _invert_shares(logits, least, numbers, temperature)
    candidates, order = top.indices.sort()
    place = _invert_shares(top.values.gather(-1, order), least, numbers, temperature)
    return candidates.gather(-1, place[:, None])[:, 0]


def _invert_shares(
    logits: torch.Tensor, least: torch.Tensor, numbers: torch.Tensor, temperature: float
) -> torch.Tensor:
    """The place in each row that its number falls into, among logits of at least ``least``."""
    shares = (logits.double() / temperature).masked_fill_(logits < least, -torch.inf).softmax(-1)
    below = shares.cumsum(-1)
    # The first token whose cumulative share exceeds the number: it has a share, as the number before did not.
    drawn = (below > numbers * below[:, -1:]).int().argmax(-1)
    return torch.where(numbers[:, 0] < 0, logits.argmax(-1), drawn)
