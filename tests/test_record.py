"""Recording every model call of an engine, and replaying the run without a model."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PILImage

from codevqa import Answer, Models, QuerySettings, Question, Settings, Writer, WriterSettings
from codevqa.core.answer_json import digest
from codevqa.core.errors import ImageError, InputError, ModelError, ReplayMissError, ServerError, SetupError
from codevqa.core.images import Picture, load_picture
from codevqa.eval.run.calls import CallStore, State, Stored, key_of
from codevqa.eval.run.record import (
    RecordedCodeVQA,
    record_engine,
    record_parts,
    recorded_settings,
    replay_engine,
)
from codevqa.eval.run.recorded_models import (
    RecordedCaptioner,
    RecordedDetector,
    RecordedLM,
    RecordedMatcher,
    RecordedRetriever,
)
from codevqa.eval.task import Example, PictureFile
from codevqa.miniworld.sampling import sample_question
from codevqa.miniworld.world import draw, sample_scene
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
from codevqa.presets.configuration import configure
from codevqa.prompts import load as load_prompts

METHODS = ("codevqa", "pnpvqa")
RED, GREEN = (load_picture(PILImage.new("RGB", (60, 40), color)) for color in ("red", "green"))
ABOUT = {"name": "m", "model": "m", "settings": {}}


@dataclasses.dataclass
class Recorded:
    """A recorded run of the mini preset."""

    folder: Path
    pictures: Path
    questions: list[Question]
    answers: dict[str, list[Answer]]

    def digests(self) -> dict[str, list[str]]:
        return {method: [digest(answer) for answer in answers] for method, answers in self.answers.items()}


def ask_all(vqa: RecordedCodeVQA, questions: list[Question]) -> dict[str, list[Answer]]:
    return {method: vqa.ask_many(questions, method=method) for method in METHODS}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A dozen drawn questions, every third about a set of three, asked of the mini models."""
    base = tmp_path_factory.mktemp("recorded")
    rng, questions = random.Random(5), []
    for number in range(12):
        scenes = [sample_scene(rng) for _ in range(3 if number % 3 == 2 else 1)]
        paths = [base / f"{number}-{place}.png" for place in range(len(scenes))]
        for scene, path in zip(scenes, paths, strict=True):
            draw(scene).save(path)
        text = sample_question(rng, scenes if len(scenes) > 1 else scenes[0]).question
        questions.append(Question([str(path) for path in paths], text))
    with record_engine(base / "RUN") as vqa:
        answers = ask_all(vqa, questions)
        assert {"caption", "embed", "generate", "match"} <= vqa.calls.counts().keys()
    assert not [answer.error for answers in answers.values() for answer in answers if not answer.text]
    return Recorded(base / "RUN", base, questions, answers)


# -- whole runs ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "max_batch"), [(16, 64), (1, 1), (5, 3)])
def test_a_replay_equals_the_run_to_the_bit(run: Recorded, workers: int, max_batch: int) -> None:
    settings = dataclasses.replace(recorded_settings(run.folder), workers=workers, max_batch=max_batch)
    with replay_engine(run.folder, settings=settings) as vqa:
        replayed = ask_all(vqa, run.questions)
    assert {name: list(map(digest, answers)) for name, answers in replayed.items()} == run.digests()
    assert replayed["codevqa"][0].models == run.answers["codevqa"][0].models
    assert any(answer.trace.calls for answer in replayed["codevqa"])


def test_a_replay_imports_no_model_library(run: Recorded) -> None:
    code = """
import json, sys
from codevqa import Question
from codevqa.core.answer_json import digest
from codevqa.eval.run.record import replay_engine
if __name__ == "__main__":
    folder, questions = sys.argv[1], [Question(images, text) for images, text in json.loads(sys.argv[2])]
    with replay_engine(folder) as vqa:
        found = {name: [digest(one) for one in vqa.ask_many(questions, method=name)] for name in ("codevqa", "pnpvqa")}
    heavy = {"torch", "transformers", "sentence_transformers", "openai", "safetensors"} & set(sys.modules)
    print(json.dumps([found, sorted(heavy)]))
"""
    asked = json.dumps([[one.images, one.text] for one in run.questions])
    done = subprocess.run([sys.executable, "-c", code, str(run.folder), asked], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [run.digests(), []]


def test_a_replay_with_another_limit_derives_the_answers_again(run: Recorded) -> None:
    settings = recorded_settings(run.folder)
    none = dataclasses.replace(settings, limits=dataclasses.replace(settings.limits, calls=0))
    with replay_engine(run.folder, settings=none) as vqa:
        answers = vqa.ask_many(run.questions)
    called = [place for place, one in enumerate(run.answers["codevqa"]) if one.trace.calls]
    assert len(called) >= 6
    for place in called:
        again = answers[place]
        assert again.fallback and again.error is not None and again.error.type == "ProgramLimitError"
        assert again.text == run.answers["pnpvqa"][place].text
        assert again.program == run.answers["codevqa"][place].program


def test_recording_again_asks_the_models_nothing(run: Recorded, tmp_path: Path) -> None:
    folder = tmp_path / "RUN"
    folder.mkdir()
    (folder / "calls.sqlite").write_bytes((run.folder / "calls.sqlite").read_bytes())
    with record_engine(folder) as vqa:
        before = vqa.calls.counts()
        answers = ask_all(vqa, run.questions)
        assert vqa.calls.counts() == before
        assert vqa.models.captioner.model.stats.text_rows == 0  # type: ignore[attr-defined]
    assert {name: list(map(digest, one)) for name, one in answers.items()} == run.digests()


def test_a_call_that_was_not_recorded_is_no_fallback(run: Recorded) -> None:
    with replay_engine(run.folder) as vqa:
        with pytest.raises(ReplayMissError, match=r"did not record the embed call of .*retriever for: Is .*--replay"):
            vqa.ask(RED, "Is this question new?")
        (missed,) = vqa.ask_many([Question(RED, run.questions[0].text)])
    assert (missed.text, missed.fallback) == ("", False)
    assert missed.error is not None and missed.error.type == "ReplayMissError"
    other = dataclasses.replace(recorded_settings(run.folder), seed=1)
    with replay_engine(run.folder, settings=other) as vqa:
        answers = vqa.ask_many(run.questions, method="pnpvqa")
    assert {one.error.type for one in answers if one.error} == {"ReplayMissError"}
    assert all("caption call" in one.error.message for one in answers if one.error)


def test_a_replay_without_the_pictures(run: Recorded, tmp_path: Path) -> None:
    with record_engine(tmp_path / "RUN") as vqa:
        asked, sizes = [], []
        for number in (0, 2):
            places = [Path(str(path)) for path in run.questions[number].images]  # type: ignore[union-attr]
            kept = [tmp_path / place.name for place in places]
            for place, copy in zip(places, kept, strict=True):
                copy.write_bytes(place.read_bytes())
            text = run.questions[number].text
            example = Example(f"00{number}", text, tuple(map(PictureFile, kept)), "image" if number == 0 else "set")
            pictures = vqa.load(example)
            sizes.append([picture.pixels.size for picture in pictures if isinstance(picture, Picture)])
            asked.append((example, digest(vqa.ask(pictures, text))))
    with replay_engine(tmp_path / "RUN") as vqa:
        for (example, expected), size in zip(asked, sizes, strict=True):
            assert digest(vqa.ask(vqa.load(example), example.question)) == expected
            for image in example.images:
                assert isinstance(image, PictureFile)
                image.path.unlink()
            gone = vqa.load(example)
            assert digest(vqa.ask(gone, example.question)) == expected
            assert [picture.pixels.size for picture in gone if isinstance(picture, Picture)] == size
            assert isinstance(gone[0], Picture)
            with pytest.raises(ReplayMissError, match=f"pixels of {gone[0].name} were not recorded"):
                gone[0].pixels.getpixel((0, 0))
        with pytest.raises(ImageError, match="No picture at"):
            vqa.load(dataclasses.replace(asked[0][0], id="another"))


# -- engines over fakes ----------------------------------------------------------------------------------------------


def parts(lm: Any = None, **models: Any) -> tuple[Writer, Models]:
    one = lm or ScriptedLM("img = open_image('Image1.jpg')\nanswer = query(img, 'a?')")
    writer = Writer(one, load_prompts("gqa"), settings=WriterSettings(selection="fixed", repairs=0))
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    chosen: dict[str, Any] = {"reader": one, "matcher": FakeMatcher(6), "captioner": captioner, **models}
    return writer, Models(**chosen)


SETTINGS = Settings(query=QuerySettings(captions=2, patches=5), writer=WriterSettings(selection="fixed", repairs=0))


def recording(folder: Path, writer: Writer, models: Models, **settings: Any) -> RecordedCodeVQA:
    store = CallStore(folder / "calls.sqlite")
    return RecordedCodeVQA(*record_parts(store, writer, models, settings), SETTINGS, store)


def test_an_engine_of_ones_own_parts_and_its_detector(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda request: "yes" if "Q: " in str(request.prompt) else "answer = find_object(img, 'dog')[0][0]")
    boxes = (Box(1 / 3, 0.1, 20, 30, 0.25),)
    writer, models = parts(lm, detector=FakeDetector(boxes))
    with recording(tmp_path, writer, models) as vqa:
        assert vqa.models.reader is vqa.writer.language_model  # one object still: one thread, shared batches
        answer = vqa.ask(RED, "Where is the dog?")
        assert (tmp_path / "calls.sqlite-wal").exists()
    assert not (tmp_path / "calls.sqlite-wal").exists()  # closed with the engine
    with replay_engine(tmp_path, settings=SETTINGS, prompts=load_prompts("gqa")) as vqa:
        assert vqa.models.reader is vqa.writer.language_model
        assert digest(vqa.ask(RED, "Where is the dog?")) == digest(answer)
    assert answer.models["detector"] == "fake-detector" and answer.error is None
    with pytest.raises(InputError, match="Give prompts and settings"):
        replay_engine(tmp_path)


def test_a_failure_is_replayed_as_it_was_and_spoils_nothing_beside_it(tmp_path: Path) -> None:
    def caption(request: CaptionRequest) -> str:
        if request.picture.key == RED.key:
            raise ModelError("red is too much", hint="Take green.", retryable=True)
        if request.picture.key == blue.key:
            raise ZeroDivisionError("blue")
        return f"thing {request.seed}"

    blue = load_picture(PILImage.new("RGB", (60, 40), "blue"))
    questions = [Question(picture, "What is it?") for picture in (RED, GREEN, blue)]
    with recording(tmp_path, *parts(captioner=FakeCaptioner(caption, grid=6))) as vqa:
        first = vqa.ask_many(questions, method="pnpvqa")
    assert [one.error and (one.error.type, one.error.message) for one in first] == [
        ("ModelError", "red is too much Take green."),
        None,
        ("ModelError", "ZeroDivisionError: blue"),
    ]
    with replay_engine(tmp_path, settings=SETTINGS, prompts=load_prompts("gqa")) as vqa:
        again = vqa.ask_many(questions, method="pnpvqa")
        with pytest.raises(ModelError) as caught:
            vqa.ask(RED, "What is it?", method="pnpvqa")
    assert list(map(digest, again)) == list(map(digest, first))
    assert caught.value.retryable and caught.value.hint == "Take green."
    with recording(tmp_path, *parts()) as vqa:  # while recording it is asked again, and then stands
        better = vqa.ask_many(questions, method="pnpvqa")
    assert [one.error for one in better] == [None] * 3
    with replay_engine(tmp_path, settings=SETTINGS, prompts=load_prompts("gqa")) as vqa:
        assert list(map(digest, vqa.ask_many(questions, method="pnpvqa"))) == list(map(digest, better))


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


def test_an_empty_reading_is_asked_again_as_without_a_record(tmp_path: Path) -> None:
    lm = ScriptedLM(["", " ", "yes"])
    with recording(tmp_path, *parts(lm)) as vqa:
        answer = vqa.ask(RED, "Is it red?", method="pnpvqa")
    assert answer.text == "yes" and len(lm.requests) == 3
    with replay_engine(tmp_path, settings=SETTINGS, prompts=load_prompts("gqa")) as vqa:
        assert vqa.ask(RED, "Is it red?", method="pnpvqa").trace == answer.trace
    silent = ScriptedLM("")
    with recording(tmp_path / "silent", *parts(silent)) as vqa:
        failed = vqa.ask_many([Question(RED, "Is it red?")], method="pnpvqa")
    assert len(silent.requests) == 5
    with replay_engine(tmp_path / "silent", settings=SETTINGS, prompts=load_prompts("gqa")) as vqa:
        again = vqa.ask_many([Question(RED, "Is it red?")], method="pnpvqa")
    assert digest(again[0]) == digest(failed[0])


def test_a_run_does_not_go_on_with_another_model(tmp_path: Path) -> None:
    recording(tmp_path, *parts(), captioner={"temperature": 1}).close()
    recording(tmp_path, *parts(), captioner={"temperature": 1}).close()
    with pytest.raises(SetupError, match=r"recorded with another captioner\. Choose"):
        recording(tmp_path, *parts(), captioner={"temperature": 0.5})
    with pytest.raises(SetupError, match="another matcher and another captioner"):
        recording(tmp_path, *parts(matcher=FakeMatcher(7)))


# -- wrappers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CallStore]:
    one = CallStore(tmp_path / "calls.sqlite")
    yield one
    one.close()


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


def test_of_two_writers_the_first_result_stands(tmp_path: Path) -> None:
    """Two processes on one file: here two connections, whose models disagree."""
    barrier = threading.Barrier(4)
    found: dict[str, list[str]] = {}
    requests = [CaptionRequest(RED, (1,), seed) for seed in range(40)]

    def work(name: str) -> None:
        store = CallStore(tmp_path / "calls.sqlite")
        recorded = RecordedCaptioner(store, ABOUT, FakeCaptioner(lambda request: f"{name} {request.seed}"))
        barrier.wait()
        order = random.Random(name).sample(requests, len(requests))
        seen = {one: recorded.caption([one])[0] for one in order}
        found[name] = [seen[one] for one in requests]
        store.close()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(map(tuple, found.values()))) == 1
    replay = CallStore(tmp_path / "calls.sqlite", read_only=True)
    assert RecordedCaptioner(replay, ABOUT).caption(requests) == found["a"]
    replay.close()


def test_a_final_result_stands_and_another_gives_way(store: CallStore) -> None:
    final, blank = b"f" * 32, b"b" * 32
    store.put("caption", {final: Stored('"first"'), blank: Stored('""', state=State.BLANK)})
    store.put("caption", {final: Stored('"second"'), blank: Stored('"second"')})
    found = store.get([final, blank])
    assert (found[final].text, found[blank].text) == ('"first"', '"second"')


# -- the file --------------------------------------------------------------------------------------------------------


def test_a_kill_loses_no_result_that_was_seen(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from PIL import Image
from codevqa.eval.run.calls import CallStore
from codevqa.eval.run.recorded_models import RecordedCaptioner
from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest
from codevqa.models.fakes import FakeCaptioner
red = load_picture(Image.new("RGB", (60, 40), "red"))
store = CallStore(Path(sys.argv[1]))
captioner = RecordedCaptioner(store, {"name": "m", "model": "m", "settings": {}}, FakeCaptioner(lambda r: f"c{r.seed}"))
for seed in range(10**9):
    print(seed, *captioner.caption([CaptionRequest(red, (1,), seed)]), flush=True)
"""
    path = tmp_path / "calls.sqlite"
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    seen = [next(process.stdout) for _ in range(150)]
    os.kill(process.pid, signal.SIGKILL)
    seen += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    pairs = [line.split() for line in seen if line.endswith("\n")]
    store = CallStore(path, read_only=True)
    requests = [CaptionRequest(RED, (1,), int(seed)) for seed, _ in pairs]
    assert RecordedCaptioner(store, ABOUT).caption(requests) == [caption for _, caption in pairs]
    store.close()
    store = CallStore(path)
    assert RecordedCaptioner(store, ABOUT, FakeCaptioner("late")).caption([CaptionRequest(RED, (1,), 10**8)]) == [
        "late"
    ]
    store.close()


class _Server(BaseHTTPRequestHandler):
    """A model server that says its own address and the key it was given, as a careless one may."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 401 if "refuse" in body["prompt"] else 200
        if status == 200:
            reply: dict[str, Any] = {
                "id": "c", "object": "text_completion", "created": 0, "model": "m",
                "choices": [{"index": 0, "text": "answer = 'yes'", "finish_reason": "stop", "logprobs": None}],
            }  # fmt: skip
        else:
            given = self.headers["Authorization"].removeprefix("Bearer ")
            reply = {"error": {"message": f"bad key {given}", "type": "error"}}
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize("user", ["", "user:hunter2hunter2@"])
def test_no_key_or_password_gets_into_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: str) -> None:
    from codevqa.presets import presets

    key = "sk-verysecretkey0123456789"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://{user}127.0.0.1:{server.server_port}/v1"
    mini = presets.PRESETS["mini"]
    options = {**mini.options, "language_model": {"api_key": key, "base_url": address, "max_retries": 0}}
    served = dataclasses.replace(mini, name="served", language_model="openai-completion:some-model", options=options)
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "served": served})
    try:
        with record_engine(tmp_path, configure("served")) as vqa:
            assert vqa.ask(RED, "Is it red?").text == "yes"
            (refused,) = vqa.ask_many([Question(RED, "Does it refuse?")])
            assert refused.error is not None and "bad key" in refused.error.message
            vqa.writer.language_model.model.close()  # type: ignore[attr-defined]
            stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    finally:
        server.shutdown()
        server.server_close()
    assert b"some-model" in stored and b"bad key" in stored and str(server.server_port).encode() in stored
    assert key.encode() not in stored and b"hunter2" not in stored


def test_files_that_cannot_be_used_are_told_from_one_another(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path} holds no recorded calls"):
        replay_engine(tmp_path)
    path = tmp_path / "calls.sqlite"
    path.write_text("Not a database, but long enough to be looked at as one by whoever opens it." * 20)
    for read_only in (True, False):
        with pytest.raises(InputError, match="is no record of calls"):
            CallStore(path, read_only=read_only)
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for read_only in (True, False):
        with pytest.raises(InputError, match="is no record of calls"):
            CallStore(path, read_only=read_only)
    path.unlink()
    CallStore(path).close()
    with pytest.raises(InputError, match="does not say which preset"):
        recorded_settings(tmp_path)
    with pytest.raises(InputError, match="records no models"):
        replay_engine(tmp_path, settings=Settings(), prompts=load_prompts("gqa"))
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(InputError, match="is of format 2, not 1"):
        CallStore(path, read_only=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="Cannot make"):
        CallStore(tmp_path / "file" / "calls.sqlite")


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
