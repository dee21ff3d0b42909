"""Holds completions to grammars, token by token, with llguidance (the extra ``constrained``).

A token is looked at alone first, which takes microseconds: most of what a model writes fits. Only where it does not is
the mask of all tokens computed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from cachetools import LRUCache

from ...core.errors import ModelError, SetupError
from ..grammar import Grammar

__all__ = ["GrammarHold", "GrammarHolds", "installed"]

_KEPT = 32
"""Grammars that are kept compiled."""


def installed() -> bool:
    """Says whether the package is there."""
    return find_spec("llguidance") is not None


class GrammarHold:
    """One completion under way: which tokens it may go on with.

    Args:
        matcher: llguidance's matcher at the beginning of the text.
        ends: tokens that end a completion: allowed where the text is whole.
    """

    def __init__(self, matcher: Any, ends: Collection[int]) -> None:
        self._matcher = matcher
        self._ends = ends
        self._over = False

    def follow(self, likeliest: Sequence[int], logits: torch.Tensor, guessed: Sequence[int]) -> list[int]:
        """Takes the next tokens, up to the first that was not guessed, and returns them.

        Args:
            likeliest: the likeliest token of each row.
            logits: of the next token, and of the one after each guess; shape (1 + guesses, vocabulary).
            guessed: tokens the rows but the first come after.
        """
        taken: list[int] = []
        for place, token in enumerate(likeliest):
            taken.append(self.choose(token, logits[place]))
            self.take(taken[-1])
            if self._over or place >= len(guessed) or taken[-1] != guessed[place]:
                break
        return taken

    def choose(self, likeliest: int, logits: torch.Tensor) -> int:
        """Returns the likeliest token that is allowed, shape of ``logits``: (vocabulary,)."""
        if self._allows(likeliest):
            return likeliest
        allowed = torch.from_numpy(self._mask(logits.shape[-1])).to(logits.device)
        return int(logits.masked_fill(~allowed, float("-inf")).argmax())

    def take(self, token: int) -> None:
        """Goes on with a token, which :meth:`choose` has returned."""
        self._over = token in self._ends
        if not self._over and not self._matcher.consume_token(token):
            self._fail()

    def _allows(self, token: int) -> bool:
        if token in self._ends:
            return bool(self._matcher.is_accepting())
        return bool(self._matcher.validate_tokens([token]) == 1)

    def _mask(self, size: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            self._fail()
        mask = np.zeros(size, np.bool_)
        found = np.unpackbits(bits, bitorder="little")[:size].astype(np.bool_)
        mask[: len(found)] = found
        mask[list(self._ends)] = self._matcher.is_accepting()
        return mask

    def _fail(self) -> None:
        said = str(self._matcher.get_error()).strip().partition("\n")[0]
        raise ModelError(f"A completion could not be held to its grammar: {said[:200]}", hint="Set constrained=False.")


class GrammarHolds:
    """Compiles grammars for one model and its tokenizer; nothing is imported before the first.

    Args:
        model: the network.
        tokenizer: its tokenizer.
        ends: tokens that end a completion.
        name: of the model, for messages.
    """

    def __init__(self, model: Any, tokenizer: Any, ends: Collection[int], name: str) -> None:
        self._model, self._tokenizer, self._ends, self._name = model, tokenizer, ends, name
        self._matchers: LRUCache[Grammar, Any] = LRUCache(_KEPT)

    def beginning(self, grammar: Grammar) -> Callable[[], GrammarHold]:
        """Returns what begins a completion that is held to a grammar.

        Raises:
            SetupError: the package is absent, or cannot read this tokenizer; or the model has no end token.
            ModelError: the grammar is wrong, or too large.
        """
        matcher = self._matchers.get(grammar)
        if matcher is None:
            matcher = self._matchers[grammar] = self._compiled(grammar)
        return lambda: GrammarHold(matcher.deep_copy(), self._ends)

    def _compiled(self, grammar: Grammar) -> Any:
        tokens = self._tokens
        from llguidance import LLMatcher

        matcher = LLMatcher(tokens, LLMatcher.grammar_from_lark(grammar.lark), log_level=0)
        if matcher.is_error():
            said = str(matcher.get_error()).strip().partition("\n")[0]
            raise ModelError(f"The grammar cannot be used: {said[:200]}")
        return matcher

    @functools.cached_property
    def _tokens(self) -> Any:
        """The vocabulary as llguidance sees it."""
        if not installed():
            raise SetupError(
                f"{self._name} cannot be held to a grammar: llguidance is absent.",
                hint="Install codevqa[constrained].",
            )
        if not self._ends:
            raise SetupError(f"{self._name} has no end token, so it cannot be held to a grammar.")
        from llguidance.hf import from_tokenizer

        size = max(self._model.config.get_text_config().vocab_size, len(self._tokenizer))
        try:
            return from_tokenizer(self._tokenizer, n_vocab=size, eos_token=min(self._ends))
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            said = " ".join(str(error).split())[:200]
            raise SetupError(
                f"{self._name} cannot be held to a grammar: llguidance cannot read its tokenizer: {said}",
                hint="Use a checkpoint with a fast tokenizer.",
            ) from None
