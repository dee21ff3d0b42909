"""Parts of the decoding loops: guesses, the tree of kept beginnings, and the plan of common ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from codevqa.models.causal_lm.cpu.prefix_cache import KeyValueBlock, PrefixCache
from codevqa.models.causal_lm.cpu.speculation import Drafter
from codevqa.models.causal_lm.gpu.prefix_plan import plan_prefixes
from codevqa.models.causal_lm.tokenised_request import TokenisedRequest


def test_guesses_follow_what_was_written_lately_then_the_prompt() -> None:
    drafter = Drafter()
    assert drafter.guess([], 4) == [] == drafter.guess([1, 2, 3], 4)
    # The first place in the prompt: the most similar example comes first.
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2, 4, 1, 2], 3) == [3, 9, 1]
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2, 4, 1, 2], 0) == []
    drafter.learn([5, 1, 2], [8, 8, 6])
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2], 9) == [8, 8, 6], "one text went on into the next"
    drafter.learn([1, 2], [4, 4])
    assert drafter.guess([7, 1, 2, 3, 9, 1, 2], 2) == [4, 4], "the latest counts"
    assert drafter.guess([5, 1, 2], 2) == [8, 8], "a longer match, though it is older"
    assert drafter.guess([1, 30, 9, 1], 2) == [2, 4]
    assert drafter.guess([6, 30, 9, 6], 2) == [30, 9], "a text ended there, the prompt goes on"


def bank(tokens: Sequence[int], start: int) -> KeyValueBlock:
    """Something to keep for each token that says which beginning it belongs to."""
    sums = torch.tensor([float(sum(tokens[: end + 1]) * 7 + end) for end in range(start, len(tokens))])
    return sums.view(1, 1, -1, 1).clone(), -sums.view(1, 1, -1, 1).clone()


def found(tree: PrefixCache, tokens: Sequence[int]) -> int:
    """How much of some tokens is known; what is kept must be theirs."""
    known, banks = tree.find(tokens)
    key, value = bank(tokens[:known], 0)
    if known:
        assert torch.equal(torch.cat([one for one, _ in banks], 2), key)
        assert torch.equal(torch.cat([one for _, one in banks], 2), value)
    return known


def test_tree_knows_the_longest_beginning() -> None:
    draw = random.Random(0)
    tree = PrefixCache(10**9)
    kept: list[list[int]] = []
    for _ in range(300):
        tokens = [draw.randrange(2) for _ in range(draw.randint(1, 14))]
        longest = max((n for n in range(len(tokens) + 1) if any(one[:n] == tokens[:n] for one in kept)), default=0)
        assert found(tree, tokens) == longest
        if draw.random() < 0.5:
            tree.add(tokens, lambda start, tokens=tokens: bank(tokens, start))  # type: ignore[misc]
            kept.append(tokens)
    distinct = {tuple(one[:n]) for one in kept for n in range(1, len(one) + 1)}
    assert tree.size == 8 * len(distinct), "beginnings in common are kept once"


def test_tree_forgets_the_least_recently_used_ends_first() -> None:
    tree = PrefixCache(8 * 12)
    for tokens in ([1, 2, 3, 4], [1, 2, 5, 6], [9, 9, 9]):
        tree.add(tokens, lambda start, tokens=tokens: bank(tokens, start))  # type: ignore[misc]
    assert tree.size == 8 * 9
    assert found(tree, [1, 2, 3, 4]) == 4
    tree.add([7] * 5, lambda start: bank([7] * 5, start))
    assert found(tree, [1, 2, 5, 6]) == 2, "5, 6 was used longest ago"
    assert [found(tree, one) for one in ([1, 2, 3, 4], [9, 9, 9], [7] * 5)] == [4, 3, 5]
    # What can never fit drives nothing out.
    tree.add([3] * 13, lambda start: bank([3] * 13, start))
    assert found(tree, [3] * 13) == 0 and found(tree, [1, 2, 3, 4]) == 4


def row(index: int, text: str, prefix: int = 0) -> TokenisedRequest:
    return TokenisedRequest(index, [ord(letter) for letter in text], prefix, 4, ())


def test_plan_holds_every_row_once_and_leaves_a_token() -> None:
    draw = random.Random(0)
    for worth in (1, 3, 10, 40):
        rows = [row(i, "".join(draw.choices("ab", k=draw.randint(1, 12)))) for i in range(200)]
        nodes = [node for root in plan_prefixes(rows, worth) for node in root.walk()]
        assert sorted(r.index for node in nodes for r in node.requests) == list(range(200))
        for node in nodes:
            for member in node.requests:
                assert member.tokens[: len(node.tokens)] == node.tokens and len(node.tokens) < len(member.tokens)
            if node.parent is not None:
                below = sum(len(n.requests) for n in node.walk())
                assert (below - 1) * (len(node.tokens) - len(node.parent.tokens)) >= worth
            assert [len(r.tokens) for r in node.requests] == sorted(len(r.tokens) for r in node.requests)
