"""Recording every model call of an engine, and replaying the run without a model."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as PILImage
from record_kit import GREEN, RED

from codevqa import Answer, Models, QuerySettings, Question, Settings, Writer, WriterSettings
from codevqa.core.answer_json import digest
from codevqa.core.errors import ImageError, InputError, ModelError, ReplayMissError, SetupError
from codevqa.core.images import Picture, load_picture
from codevqa.eval.run.calls import CallStore
from codevqa.eval.run.record import RecordedCodeVQA, record_engine, record_parts, recorded_settings, replay_engine
from codevqa.eval.task import Example, PictureFile
from codevqa.miniworld.sampling import sample_question
from codevqa.miniworld.world import draw, sample_scene
from codevqa.models.base import Box, CaptionRequest
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.prompts import load as load_prompts

METHODS = ("codevqa", "pnpvqa")


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
