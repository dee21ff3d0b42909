"""The public fakes."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from codevqa.core.errors import ModelError
from codevqa.core.images import load_picture
from codevqa.models.base import GenerationRequest, MatchRequest
from codevqa.models.fakes import FakeMatcher, ScriptedLM


def test_scripted_list_is_used_up_in_order() -> None:
    one, other = GenerationRequest("Q: what is it?", 8), GenerationRequest("other", 8)
    lm = ScriptedLM(["one", "two words", "three"])
    first = lm.generate([one, other])
    assert [c.text for c in first] == ["one", "two words"]
    assert (first[1].prompt_tokens, first[1].completion_tokens) == (1, 2)
    assert [c.text for c in lm.generate([one])] == ["three"]
    assert (lm.calls, lm.batches, lm.requests[1]) == (2, [2, 1], other)
    with pytest.raises(ModelError, match="3 completions"):
        lm.generate([one])


def test_a_map_that_is_given_stays_its_owner_s_and_fits_the_grid() -> None:
    asked, peak = MatchRequest(load_picture(Image.new("RGB", (8, 8))), "cat"), np.eye(3, dtype=np.float32)
    matcher = FakeMatcher(3, relevance=peak)
    matcher.match([asked])[0].relevance[:] = 0
    np.testing.assert_array_equal(matcher.match([asked])[0].relevance, peak)
    with pytest.raises(ModelError, match="grid is 4x4"):
        FakeMatcher(4, relevance=peak).match([asked])
