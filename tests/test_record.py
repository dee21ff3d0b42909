"""The recorded calls of one model: its results come back to the bit, and only what is not there yet is asked."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from record_kit import ABOUT, GREEN, RED

from codevqa.core.errors import InputError, ModelError, ServerError, SetupError
from codevqa.eval.run.calls import CallStore, State, Stored, key_of
from codevqa.eval.run.recorded_models import (
    RecordedCaptioner,
    RecordedDetector,
    RecordedLM,
    RecordedMatcher,
    RecordedRetriever,
)
from codevqa.models.base import (
    Box,
    CaptionRequest,
    Completion,
    DetectRequest,
    GenerationRequest,
    Match,
    MatchRequest,
    Message,
    SimilarityRequest,
)
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CallStore]:
    one = CallStore(tmp_path / "calls.sqlite")
    yield one
    one.close()


def test_a_server_that_is_down_fails_every_call_of_its_batch(tmp_path: Path) -> None:
    class Down:
        name, grid = "m", 6

        def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
            raise ServerError("down")

    store = CallStore(tmp_path / "calls.sqlite")
    requests = [CaptionRequest(RED, (1,), seed) for seed in range(2)]
    with pytest.raises(ServerError, match="down"):
        RecordedCaptioner(store, ABOUT, Down()).caption(requests)
    RecordedCaptioner(store, ABOUT, FakeCaptioner("here")).caption([CaptionRequest(GREEN)])
    replay = RecordedCaptioner(store, ABOUT)
    with pytest.raises(ModelError, match="ask each alone") as caught:
        replay.caption([requests[0], CaptionRequest(GREEN)])
    assert not isinstance(caught.value, ServerError)  # which would fail the recorded call beside it
    with pytest.raises(ServerError, match="down"):
        replay.caption(requests[1:])
    store.close()


def test_only_what_is_missing_goes_on_in_one_batch(store: CallStore) -> None:
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}")
    recorded = RecordedCaptioner(store, {**ABOUT, "grid": 24}, captioner)
    assert (recorded.name, recorded.grid) == ("m", 24)
    requests = [CaptionRequest(RED, (1, 2), seed) for seed in (0, 1, 1, 2)]
    assert recorded.caption(requests[:2]) == ["thing 0", "thing 1"]
    assert recorded.caption([*requests, requests[0]]) == ["thing 0", "thing 1", "thing 1", "thing 2", "thing 0"]
    assert captioner.batches == [2, 1]
    assert recorded.caption([]) == [] and captioner.batches == [2, 1]
    many = [CaptionRequest(RED, None, seed) for seed in range(1200)]
    assert recorded.caption(many) == RecordedCaptioner(store, ABOUT).caption(many)


def test_how_a_model_likes_its_batches_is_passed_on(store: CallStore) -> None:
    class Choosy(FakeCaptioner):
        batch = 7

    recorded, plain = RecordedCaptioner(store, ABOUT, Choosy()), RecordedCaptioner(store, ABOUT, FakeCaptioner())
    assert recorded.batch == 7
    assert plain.batch == 64


def test_results_come_back_to_the_bit(store: CallStore) -> None:
    relevance = np.random.default_rng(0).random((6, 6)).astype(np.float32)
    relevance[0, :3] = np.nan, -0.0, 1e-42
    relevance = np.asfortranarray(relevance)
    matcher = FakeMatcher(6, relevance=relevance, logit=float("-inf"), similarity=1 / 3)
    pair, like = MatchRequest(RED, "a dog", "dog"), SimilarityRequest(RED, "a dog")
    for model in (matcher, None):
        recorded = RecordedMatcher(store, ABOUT, model)
        (match,) = recorded.match([pair])
        assert match.relevance.dtype == np.float32 and match.relevance.flags.writeable
        assert match.relevance.tobytes() == relevance.tobytes() and match.logit == float("-inf")
        assert recorded.similarity([like]) == [1 / 3]
    boxes = (Box(0.1, 1 / 3, 2, 3, 0.9), Box(1, 2, 3, 4, 0.1))
    for detector in (FakeDetector(lambda request: boxes if request.phrase == "dog" else ()), None):
        assert RecordedDetector(store, ABOUT, detector).detect(
            [DetectRequest(RED, "dog"), DetectRequest(RED, "cat")]
        ) == [boxes, ()]
    chat = GenerationRequest((Message("system", "Be brief."), Message("user", "naïve \ud83d?")), 5)
    wrote = RecordedLM(store, ABOUT, ScriptedLM("one two\ud83d")).generate([chat])
    assert RecordedLM(store, ABOUT).generate([chat]) == wrote == [Completion("one two\ud83d", 4, 2)]


def test_captions_of_another_length_are_other_captions(store: CallStore) -> None:
    captioner = FakeCaptioner(lambda request: f"a thing of {request.tokens}")
    requests = [CaptionRequest(RED, (1, 2), 3, tokens) for tokens in (None, (10, 20), (10, 30))]
    told = RecordedCaptioner(store, ABOUT, captioner).caption(requests)
    assert RecordedCaptioner(store, ABOUT).caption(requests) == told == [f"a thing of {one.tokens}" for one in requests]


def test_embeddings_come_back_to_the_bit(store: CallStore) -> None:
    class Embedder:
        name = "e"
        asked: list[str] = []  # noqa: RUF012

        def embed(self, sentences: Sequence[str]) -> Any:
            self.asked.extend(sentences)
            return np.array([[len(one), 1 / (1 + len(one))] for one in sentences], np.float32)

    first = RecordedRetriever(store, ABOUT, Embedder()).embed(["a", "bcd", "a"])
    again = RecordedRetriever(store, ABOUT, Embedder()).embed(["bcd", "a"])
    assert Embedder.asked == ["a", "bcd"]
    assert first.shape == (3, 2) and first.dtype == np.float32
    assert again.tobytes() == first[1:].tobytes() == RecordedRetriever(store, ABOUT).embed(["bcd", "a"]).tobytes()


def test_the_key_holds_everything_a_result_depends_on(store: CallStore) -> None:
    def asked(captioner: FakeCaptioner, request: CaptionRequest, **about: Any) -> int:
        RecordedCaptioner(store, {**ABOUT, **about}, captioner).caption([request])
        return len(captioner.requests)

    base = CaptionRequest(RED, (1, 2), 3)
    captioner = FakeCaptioner()
    assert asked(captioner, base) == 1
    renamed = dataclasses.replace(base, picture=dataclasses.replace(RED, name="other.png"))
    assert asked(captioner, renamed) == 1 == asked(captioner, base, name="/elsewhere/m", grid=3)
    for number, changed in enumerate(({"picture": GREEN}, {"patches": (1,)}, {"patches": None}, {"seed": None}), 2):
        assert asked(captioner, dataclasses.replace(base, **changed)) == number  # type: ignore[arg-type]
    assert asked(captioner, base, settings={"temperature": 1}) == 6
    assert asked(captioner, base, model="n") == 7

    def generated(lm: ScriptedLM, **changed: Any) -> int:
        request = dataclasses.replace(GenerationRequest("p", 5, ("\n",), 1), **changed)
        RecordedLM(store, ABOUT, lm).generate([request])
        return len(lm.requests)

    lm = ScriptedLM("x")
    assert generated(lm) == 1 == generated(lm, shared=0)
    turns = (Message("user", "p"),)
    others: list[dict[str, Any]] = [{"prompt": "q"}, {"prompt": turns}, {"prompt": (Message("system", "p"),)}]
    for number, change in enumerate([*others, {"max_tokens": 6}, {"stop": ()}], 2):
        assert generated(lm, **change) == number

    matcher = FakeMatcher(6)
    recorded = RecordedMatcher(store, ABOUT, matcher)
    pair = MatchRequest(RED, "a", "a")
    for change in ({}, {"picture": GREEN}, {"text": "b"}, {"focus": None}, {"focus": "b"}):
        recorded.match([dataclasses.replace(pair, **change)])
    recorded.similarity([SimilarityRequest(RED, "a"), SimilarityRequest(GREEN, "a"), SimilarityRequest(RED, "b")])
    assert (len(matcher.matches.requests), len(matcher.similarities.requests)) == (5, 3)
    assert key_of("match", ABOUT, ["a"]) != key_of("similarity", ABOUT, ["a"])


def test_a_final_result_stands_and_another_gives_way(store: CallStore) -> None:
    final, blank = b"f" * 32, b"b" * 32
    store.put("caption", {final: Stored('"first"'), blank: Stored('""', state=State.BLANK)})
    store.put("caption", {final: Stored('"second"'), blank: Stored('"second"')})
    found = store.get([final, blank])
    assert (found[final].text, found[blank].text) == ('"first"', '"second"')


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_a_damaged_call_is_one_clear_line(store: CallStore) -> None:
    RecordedCaptioner(store, ABOUT, FakeCaptioner()).caption([CaptionRequest(RED)])
    RecordedMatcher(store, ABOUT, FakeMatcher(6)).match([MatchRequest(RED, "a")])
    with sqlite3.connect(store.path) as other:
        other.execute("UPDATE calls SET text = '{' WHERE kind = 'caption'")
        other.execute("UPDATE calls SET data = x'00' WHERE kind = 'match'")
    other.close()
    with pytest.raises(InputError, match="holds a damaged caption call"):
        RecordedCaptioner(store, ABOUT).caption([CaptionRequest(RED)])
    with pytest.raises(InputError, match="holds a damaged match call"):
        RecordedMatcher(store, ABOUT).match([MatchRequest(RED, "a")])


def test_a_full_disk_is_said_and_the_record_goes_on_after_it(store: CallStore) -> None:
    captioner = RecordedCaptioner(store, ABOUT, FakeCaptioner("x" * 100_000))
    limit: Callable[[int], Any] = lambda pages: store._connection.execute(f"PRAGMA max_page_count = {pages}")  # noqa: E731
    limit(10)
    with pytest.raises(SetupError, match=r"Cannot write .*disk is full"):
        captioner.caption([CaptionRequest(RED)])
    limit(10_000)
    assert captioner.caption([CaptionRequest(RED)]) == ["x" * 100_000]


def test_names_that_are_no_text(store: CallStore) -> None:
    store.put_picture("1", 0, RED.key, (60, 40), "caf\udce9.png")
    assert store.picture("1", 0) == (RED.key, (60, 40), "caf?.png")
    with pytest.raises(UnicodeEncodeError):
        store.put_picture("\udce9", 0, RED.key, (60, 40), "")
    store.set_about("after", 1)
    assert store.about("after") == 1


def test_a_wrong_number_of_results_is_an_error_and_nothing_is_kept(store: CallStore) -> None:
    class Short(FakeMatcher):
        def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
            return super().match(requests)[1:]

    pairs = [MatchRequest(RED, "a"), MatchRequest(RED, "b")]
    with pytest.raises(ModelError, match="1 results for 2 requests"):
        RecordedMatcher(store, ABOUT, Short(6)).match(pairs)
    assert store.counts() == {}
