"""Recording every model call of an engine, and replaying the run without a model, to the bit."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from openai_kit import Reply, Serve, completion, failure
from PIL import Image as PILImage

from codevqa import Answer, CodeVQA, Models, QuerySettings, Question, Settings, Writer, WriterSettings
from codevqa.collections.disk_memory import CALLS, DiskMemory
from codevqa.core.errors import ModelError, ReplayMissError, SetupError
from codevqa.core.images import load_picture
from codevqa.eval.run.record import record_engine, record_parts, replay_engine
from codevqa.mini.questions import sample_question
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import draw_scene
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.models.protocols import (
    Box,
    CaptionRequest,
    Completion,
    DetectRequest,
    GenerationRequest,
    MatchRequest,
    Message,
    SimilarityRequest,
)
from codevqa.models.recorded import RecordedModel
from codevqa.presets.assembly import prompt_sets
from codevqa.presets.configuration import configure
from codevqa.presets.presets import preset
from codevqa.prompts import load_prompt_set as load_prompts

METHODS = ("codevqa", "pnpvqa")
RED, GREEN = (load_picture(PILImage.new("RGB", (60, 40), color)) for color in ("red", "green"))
ABOUT: dict[str, Any] = {"name": "m", "model": "m", "grid": 6, "settings": {}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskMemory]:
    store = DiskMemory(tmp_path / CALLS)
    yield store
    store.close()


class Recorded(NamedTuple):
    folder: Path
    questions: list[Question]
    answers: dict[str, list[Answer]]


def digests(answers: dict[str, list[Answer]]) -> dict[str, list[str]]:
    return {method: [digest(answer) for answer in some] for method, some in answers.items()}


def ask_all(vqa: CodeVQA, questions: list[Question]) -> dict[str, list[Answer]]:
    return {method: vqa.ask_many(questions, method=method) for method in METHODS}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Some drawn questions, every third about a set of three, asked of the mini models."""
    base = tmp_path_factory.mktemp("recorded")
    rng, questions = random.Random(5), []
    for number in range(6):
        scenes = [sample_scene(rng) for _ in range(3 if number % 3 == 2 else 1)]
        paths = [base / f"{number}-{place}.png" for place in range(len(scenes))]
        for scene, path in zip(scenes, paths, strict=True):
            draw_scene(scene).save(path)
        text = sample_question(rng, scenes if len(scenes) > 1 else scenes[0]).question
        questions.append(Question([str(path) for path in paths], text))
    with record_engine(base / "RUN", configure()) as vqa:
        answers = ask_all(vqa, questions)
    return Recorded(base / "RUN", questions, answers)


def again(folder: Path, settings: Settings | None = None) -> CodeVQA:
    """The engine of that run without its models."""
    return replay_engine(folder, settings or configure().settings, prompt_sets(preset("mini"), None))


@pytest.mark.parametrize(("workers", "max_batch"), [(1, 1), (5, 3)])
def test_a_replay_equals_the_run_to_the_bit(run: Recorded, workers: int, max_batch: int) -> None:
    settings = dataclasses.replace(configure().settings, workers=workers, max_batch=max_batch)
    with again(run.folder, settings) as vqa:
        replayed = ask_all(vqa, run.questions)
    assert digests(replayed) == digests(run.answers)
    assert replayed["codevqa"][0].models == run.answers["codevqa"][0].models
    assert any(answer.trace.calls for answer in replayed["codevqa"])


def test_a_call_that_was_not_recorded_is_no_fallback(run: Recorded) -> None:
    with again(run.folder) as vqa:
        with pytest.raises(ReplayMissError, match=r"did not record the embed call of .*retriever for: ..Is .*--replay"):
            vqa.ask(RED, "Is this question new?")
        (missed,) = vqa.ask_many([Question(RED, run.questions[0].text)])
    assert (missed.text, missed.fallback) == ("", False)
    assert missed.error is not None and missed.error.type == "ReplayMissError"


def parts(lm: Any = None, **models: Any) -> tuple[Writer, Models]:
    language_model = lm or ScriptedLM("img = open_image('Image1.jpg')\nanswer = query(img, 'a?')")
    writer = Writer(language_model, load_prompts("gqa"), settings=WriterSettings(selection="fixed", repairs=0))
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    chosen: dict[str, Any] = {"reader": language_model, "matcher": FakeMatcher(6), "captioner": captioner, **models}
    return writer, Models(**chosen)


SETTINGS = Settings(query=QuerySettings(captions=2, patches=5), writer=WriterSettings(selection="fixed", repairs=0))


def recording(folder: Path, writer: Writer, models: Models, **settings: Any) -> CodeVQA:
    return record_parts(folder, writer, models, SETTINGS, settings)


def replaying(folder: Path) -> CodeVQA:
    return replay_engine(folder, SETTINGS, load_prompts("gqa"))


def test_an_engine_of_ones_own_parts_and_its_detector(tmp_path: Path) -> None:
    lm = ScriptedLM(lambda request: "yes" if "Q: " in str(request.prompt) else "answer = find_object(img, 'dog')[0][0]")
    boxes = (Box(1 / 3, 0.1, 20, 30, 0.25),)
    writer, models = parts(lm, detector=FakeDetector(boxes))
    with recording(tmp_path, writer, models) as vqa:
        assert vqa.models.reader is vqa.writer.language_model  # one object still: one thread, shared batches
        answer = vqa.ask(RED, "Where is the dog?")
        assert (tmp_path / "calls.sqlite-wal").exists()
    assert not (tmp_path / "calls.sqlite-wal").exists()  # closed with the engine
    with replaying(tmp_path) as vqa:
        assert vqa.models.reader is vqa.writer.language_model
        assert digest(vqa.ask(RED, "Where is the dog?")) == digest(answer)
    assert answer.models["detector"] == "fake-detector" and answer.error is None


def test_a_replay_writes_as_many_programs_as_the_run(tmp_path: Path) -> None:
    lm = ScriptedLM(
        lambda request: "yes" if "Q: " in str(request.prompt) else "answer = query(img, 'Is it?')", cheap=True
    )
    with recording(tmp_path, *parts(lm)) as vqa:
        answer = vqa.ask(RED, "Is it a dog?")
    with replaying(tmp_path) as vqa:
        assert digest(vqa.ask(RED, "Is it a dog?")) == digest(answer) and len(answer.trace.drafts) == 2


def test_a_failure_is_not_recorded_and_spoils_nothing_beside_it(tmp_path: Path) -> None:
    def caption(request: CaptionRequest) -> str:
        if request.picture.key == RED.key:
            raise ModelError("red is too much")
        return f"thing {request.seed}"

    questions = [Question(picture, "What is it?") for picture in (RED, GREEN)]
    with recording(tmp_path, *parts(captioner=FakeCaptioner(caption, grid=6))) as vqa:
        first = vqa.ask_many(questions, method="pnpvqa")
    with replaying(tmp_path) as vqa:
        replayed = vqa.ask_many(questions, method="pnpvqa")
    assert [answer.error and answer.error.type for answer in first] == ["ModelError", None]
    assert [answer.error and answer.error.type for answer in replayed] == ["ReplayMissError", None]
    assert digest(replayed[1]) == digest(first[1])
    with recording(tmp_path, *parts()) as vqa:  # while recording it is asked again, and then stands
        better = vqa.ask_many(questions, method="pnpvqa")
    with replaying(tmp_path) as vqa:
        assert list(map(digest, vqa.ask_many(questions, method="pnpvqa"))) == list(map(digest, better))


def test_a_run_does_not_go_on_with_another_model(tmp_path: Path) -> None:
    recording(tmp_path, *parts(), captioner={"temperature": 1}).close()
    recording(tmp_path, *parts(), captioner={"temperature": 1}).close()
    with pytest.raises(SetupError, match=r"recorded with another captioner\. Choose"):
        recording(tmp_path, *parts(), captioner={"temperature": 0.5})
    with pytest.raises(SetupError, match="another matcher and another captioner"):
        recording(tmp_path, *parts(matcher=FakeMatcher(7)))


def test_results_come_back_to_the_bit(store: DiskMemory) -> None:
    relevance = np.random.default_rng(0).random((6, 6)).astype(np.float32)
    relevance[0, :3] = np.nan, -0.0, 1e-42
    relevance = np.asfortranarray(relevance)
    matcher = FakeMatcher(6, relevance=relevance, logit=float("-inf"), similarity=1 / 3)
    for model in (matcher, None):
        recorded = RecordedModel(store, ABOUT, model)
        (match,) = recorded.match([MatchRequest(RED, "a dog", "dog")])
        assert match.relevance.dtype == np.float32 and match.relevance.flags.writeable
        assert match.relevance.tobytes() == relevance.tobytes() and match.logit == float("-inf")
        assert recorded.similarity([SimilarityRequest(RED, "a dog")]) == [1 / 3]
    boxes = (Box(0.1, 1 / 3, 2, 3, 0.9), Box(1, 2, 3, 4, 0.1))
    for detector in (FakeDetector(lambda request: boxes if request.phrase == "dog" else ()), None):
        phrases = [DetectRequest(RED, "dog"), DetectRequest(RED, "cat")]
        assert RecordedModel(store, ABOUT, detector).detect(phrases) == [boxes, ()]
    chat = GenerationRequest((Message("system", "Be brief."), Message("user", "naïve \ud83d?")), 5)
    wrote = RecordedModel(store, ABOUT, ScriptedLM("one two\ud83d")).generate([chat])
    assert RecordedModel(store, ABOUT).generate([chat]) == wrote == [Completion("one two\ud83d", 4, 2)]


CAPTION, TEXT = CaptionRequest(RED, (1, 2), 3), GenerationRequest("p", 5, ("\n",), 1)
CAPTIONS: list[dict[str, Any]] = [{"picture": GREEN}, {"patches": (1,)}, {"patches": None}, {"seed": 4}]
CAPTIONS += [{"tokens": (1, 2)}]
TEXTS: list[dict[str, Any]] = [{"prompt": "q"}, {"prompt": (Message("user", "p"),)}, {"max_tokens": 6}, {"stop": ()}]


@pytest.mark.parametrize(
    ("kind", "base", "changes"),
    [("caption", CAPTION, CAPTIONS), ("generate", TEXT, TEXTS)],
)
def test_the_key_holds_all_that_matters(store: DiskMemory, kind: str, base: Any, changes: list[dict[str, Any]]) -> None:
    model = FakeCaptioner("a") if kind == "caption" else ScriptedLM("a")
    getattr(RecordedModel(store, ABOUT, model), kind)([base])
    replay = getattr(RecordedModel(store, {**ABOUT, "name": "/elsewhere/m", "grid": 3}), kind)
    assert len(replay([base])) == 1
    for change in changes:
        with pytest.raises(ReplayMissError):
            replay([dataclasses.replace(base, **change)])
    for other in ({"settings": {"temperature": 1}}, {"model": "n"}):
        with pytest.raises(ReplayMissError):
            getattr(RecordedModel(store, {**ABOUT, **other}), kind)([base])


@pytest.mark.parametrize(("user", "query"), [("", ""), ("user:hu@hunter2@", "?api_key=hunter2hunter2")])
def test_no_secret_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve, user: str, query: str) -> None:
    from codevqa.presets import presets

    key = "sk-verysecretkey0123456789"

    def reply(path: str, body: dict[str, Any], number: int) -> Reply:
        """Refuses with the key that it was given, as a careless server may."""
        inputs = server.seen[-1][2]["authorization"].removeprefix("Bearer ")
        return failure(401, f"bad key {inputs}") if "refuse" in body["prompt"] else completion("answer = 'yes'")

    server = serve(reply)
    address = f"http://{user}127.0.0.1:{server.server_port}/v1{query}"
    mini = presets.PRESETS["mini"]
    options = {**mini.options, "language_model": {"api_key": key, "base_url": address, "max_retries": 0}}
    served = dataclasses.replace(mini, name="served", language_model="openai-completion:some-model", options=options)
    monkeypatch.setattr(presets, "PRESETS", {**presets.PRESETS, "served": served})
    with record_engine(tmp_path, configure("served")) as vqa:
        assert vqa.ask(RED, "Is it red?").text == "yes"
        (refused,) = vqa.ask_many([Question(RED, "Does it refuse?")])
        assert refused.error is not None and "bad key" in refused.error.message
        stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"some-model" in stored and str(server.server_port).encode() in stored
    assert key.encode() not in stored and b"hunter2" not in stored


def digest(answer: Answer) -> str:
    """The SHA-256 of an answer's JSON without times: the same for an answer that was derived again."""
    shown = answer.to_dict()
    del shown["seconds"], shown["stages"], shown["cost"]
    for call in shown["calls"]:
        del call["seconds"], call["remembered"], call["ahead"]
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
