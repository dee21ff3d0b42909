"""The public fakes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from codevqa.core.errors import ModelError
from codevqa.core.images import Picture, load_picture
from codevqa.models.base import (
    GenerationRequest,
    Matcher,
    MatchRequest,
    SimilarityRequest,
)
from codevqa.models.fakes import FakeMatcher, ScriptedLM


def picture(color: str) -> Picture:
    return load_picture(Image.new("RGB", (8, 8), color))


def ask(prompt: str = "Q: what is it?", stop: tuple[str, ...] = ()) -> GenerationRequest:
    return GenerationRequest(prompt, 8, stop)


def test_scripted_list_is_used_up_in_order() -> None:
    lm = ScriptedLM(["one", "two words", "three"])
    first = lm.generate([ask(), ask("other")])
    assert [c.text for c in first] == ["one", "two words"]
    assert (first[1].prompt_tokens, first[1].completion_tokens) == (1, 2)
    assert [c.text for c in lm.generate([ask()])] == ["three"]
    assert (lm.calls, lm.batches, [r.prompt for r in lm.requests][1]) == (2, [2, 1], "other")
    with pytest.raises(ModelError, match="3 completions"):
        lm.generate([ask()])


def test_matcher_answers_depend_on_the_request_alone() -> None:
    matcher = FakeMatcher(grid=6)
    requests = [MatchRequest(picture(color), text) for color in ("red", "blue") for text in ("cat", "dog", "a hat")]
    together = matcher.match(requests)
    again = [FakeMatcher(grid=6).match([request])[0] for request in requests]
    for one, other in zip(together, again, strict=True):
        assert one.relevance.shape == (6, 6)
        assert one.relevance.dtype == np.float32
        np.testing.assert_array_equal(one.relevance, other.relevance)
        assert one.relevance.sum() == 1
    assert len({int(match.relevance.argmax()) for match in together}) > 2
    assert matcher.matches.batches == [6]
    assert matcher.matches.requests == requests
    scores = matcher.similarity([SimilarityRequest(r.picture, r.text) for r in requests])
    assert len(set(scores)) == 6
    assert all(-1 <= score <= 1 for score in scores)
    assert (matcher.similarities.calls, matcher.matches.calls) == (1, 1)


def test_matcher_with_given_answers() -> None:
    peak = np.eye(3, dtype=np.float32)
    given: Matcher = FakeMatcher(
        3, relevance=peak, logit=lambda r: len(r.text), similarity=lambda r: 0.5 if r.text == "cat" else -0.5
    )
    (match,) = given.match([MatchRequest(picture("red"), "cat")])
    np.testing.assert_array_equal(match.relevance, peak)
    match.relevance[:] = 0  # a caller's own copy
    assert given.match([MatchRequest(picture("red"), "cats")])[0].relevance.sum() == 3
    assert match.logit == 3.0
    assert given.similarity([SimilarityRequest(picture("red"), t) for t in ("cat", "dog")]) == [0.5, -0.5]
    with pytest.raises(ModelError, match="grid is 4x4"):
        FakeMatcher(4, relevance=lambda r: peak).match([MatchRequest(picture("red"), "cat")])
