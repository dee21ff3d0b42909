"""BLIP's tokens: texts into word pieces and back, by the library ``tokenizers`` alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
        self._tokenizer: Any = _read(folder)
        # A user's text may spell "[SEP]": it stays text.
        self._tokenizer.encode_special_tokens = True
        self.vocabulary: dict[str, int] = self._tokenizer.get_vocab()
        self.pad, self.end = self._special("[PAD]"), self._special("[SEP]")
        self._tokenizer.enable_padding(pad_id=self.pad, pad_token="[PAD]")
        self._tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
        added = self._tokenizer.get_added_tokens_decoder()
        self._silent = {number for number, token in added.items() if token.special}
        self._silent |= {self.vocabulary[one] for one in _OWN if one in self.vocabulary}

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
        told = [token for token in tokens if token not in self._silent]
        text: str = self._tokenizer.decode(told)
        for before, after in _TIDY:
            text = text.replace(before, after)
        return text.strip()

    def _special(self, token: str) -> int:
        if token not in self.vocabulary:
            raise ValueError(f"its tokenizer has no {token}")
        return self.vocabulary[token]


_OWN = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def _read(folder: Path) -> Any:
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
    lacking = [one for one in _OWN if one not in numbers]
    if lacking:
        raise ValueError(f"{vocabulary} has no {lacking[0]}")
    return BertWordPieceTokenizer(numbers, lowercase=lowercase)._tokenizer
