"""With the files and settings of the paper's release, models are asked what it asks them, byte for byte.

The reference is the release's own code, run in another process (:mod:`release_kit`); ``CODEVQA_RELEASE`` says where its
checkout is.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import release_kit
import yaml  # type: ignore[import-untyped, unused-ignore]
from PIL import Image
from tiny import write_blip

from codevqa import Answer, CodeVQA, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.core.images import load_picture
from codevqa.core.trace import Form, Method
from codevqa.core.wording import bare
from codevqa.models.base import CaptionRequest, GenerationRequest, MatchRequest
from codevqa.models.blip import BlipMatcher
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.presets.presets import PRESETS
from codevqa.prompts import PromptSet, available, load

RELEASE = os.environ.get("CODEVQA_RELEASE", "")
pytestmark = [
    pytest.mark.skipif(not RELEASE, reason="CODEVQA_RELEASE names no checkout of the paper's release"),
    pytest.mark.slow,
]
SETTINGS = Settings(
    writer=WriterSettings(form="completion", wording="release", repairs=0, fit=False),
    query=QuerySettings(form="completion", wording="release", attempts=4, fit=False),
    position_text="question",
    position_at="corner",
    answers="release",
    remember=0,
    ahead=False,
)
GQA = "gqa_programs_and_questions_nocomments3b.json"
POOLS = {
    GQA: "gqa",
    "covr_programs_and_questions50b.json": "covr",
    "covr_programs_and_questions50b_find.json": "covr",
    "nlvr2_programs_and_questions50.json": "nlvr2",
    "nlvr2_programs_and_questions50_find.json": "nlvr2",
    "vqav2_programs_and_questions50_find.json": "vqav2",
    "okvqa_programs_and_questions50.json": "okvqa",
}
POOLS = {pool: task for pool, task in POOLS.items() if task in available()}
QUESTIONS = {
    "vqav2": ("What's on the MAN's head; a hat?", "Name the  dog", "Why #1 (or 2)?"),
    "okvqa": (
        "What's on the MAN's head; a hat?",
        "Name the  dog",
        "Why #1 (or 2)?",
        *map("Who {} it?".format, range(9)),
    ),
    "gqa": ('Is the "STOP" sign (on the left) Red, or  green?', "Which color is it", "a " * 60 + "end?"),
    "covr": ("There are 2  images that contain a Dog.", "How many images show at least 3 women: all?", "Is it " * 22),
    "nlvr2": (
        "The LEFT image shows two dogs!",
        "Both  images #1 and #2 contain; a cat.",
        "Is there a dog in both images?",
    ),
}
CAPTIONS = ("a STOP sign - on a pole", "the End.", "two of them", "a man's hat", "red, green", "7 x 8 tiles", "an eye")
FAILS = "answer = 1 / 0"
KNOWS = 'img = open_image("Image8.jpg")\nanswer = knowledge_query("Who wrote the BOOK?")'
ASKS = 'query({}, "Is the \\"STOP\\" sign (there) RED?")'
PROGRAMS: dict[Form, tuple[str, ...]] = {
    "image": (f'img = open_image("Image13.jpg")\nanswer = {ASKS.format("img")}', FAILS),
    "set": (
        f'images = open_images("ImageSet7.jpg")\nanswer = {ASKS.format("images[1]")}',
        f'images = open_images("ImageSet7")\nanswer = {ASKS.format("images")}',
        FAILS,
    ),
}


class Embeds:
    """The retriever that the reference has."""

    name = "reference"
    batches = True

    def embed(self, sentences: Sequence[str]) -> Any:
        return np.array([release_kit.embed(one) for one in sentences], np.float32)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    (folder / "VG_100K").mkdir()
    for number in (1, 2):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(folder / "VG_100K" / f"{number}.jpg", "PNG")
    return folder


def of_release(pool: str, preamble: str, pictures: Path, **case: Any) -> list[dict[str, Any]]:
    """Returns what the release asked its models for each question, and what it answered."""
    (pictures / "preamble.py").write_text(preamble)
    given = {
        "release": RELEASE,
        "task": POOLS[pool],
        "programs": pool,
        "pictures": str(pictures),
        "preamble": str(pictures / "preamble.py"),
        **case,
    }
    done = subprocess.run(
        [sys.executable, release_kit.__file__], input=json.dumps(given), capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told: list[dict[str, Any]] = json.loads(done.stdout)
    return told


def told_captions(count: int) -> dict[str, list[str]]:
    """Captions of both pictures, as many as are read."""
    return {"1": list(CAPTIONS[:count]), "2": [f"{caption} too" for caption in CAPTIONS[:count]]}


def pool_of(pool: str) -> PromptSet:
    """Returns a pool as it is, with a preamble for sets: the release lacks the one that it names."""
    prompts = load(Path(RELEASE) / pool)
    return replace(prompts, preamble=load("covr").preamble) if prompts.form == "set" else prompts


class Ours:
    """An engine over scripted models, and what they were asked."""

    def __init__(self, prompts: PromptSet, pictures: Path, reply: str) -> None:
        self.prompts, self.reply, self.program = prompts, reply, ""
        self.asked: list[dict[str, Any]] = []
        self.captions = {number: cycle(told) for number, told in told_captions(prompts.captions).items()}
        paths = sorted(pictures.glob("*/*.jpg"))[: 1 if prompts.form == "image" else None]
        self.images: list[Path | Image.Image] = list(paths)
        self.model, self.matcher = ScriptedLM(self.complete), FakeMatcher(6)
        self.writer = Writer(self.model, {prompts.form: prompts}, Embeds(), SETTINGS.writer)

    def complete(self, request: GenerationRequest) -> str:
        self.asked.append({"prompt": request.prompt, "max_tokens": request.max_tokens})
        return f"\n{self.program}" if request.max_tokens == SETTINGS.writer.max_tokens else self.reply

    def caption(self, request: CaptionRequest) -> str:
        return next(self.captions[str(np.asarray(request.picture.pixels)[0, 0, 0])])

    def answer(self, vqa: CodeVQA, question: str, program: str, method: Method) -> Answer:
        """Answers one question with a program."""
        self.asked, self.program = [], program
        self.matcher.matches.requests.clear()
        return vqa.ask(self.images, question, form=self.prompts.form, method=method)


@pytest.mark.parametrize("reply", ["Yes", ""])
@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
@pytest.mark.parametrize("pool", POOLS)
def test_models_are_asked_what_the_release_asks_them(pool: str, method: Method, reply: str, pictures: Path) -> None:
    prompts = pool_of(pool)
    ours = Ours(prompts, pictures, reply)
    programs = PROGRAMS[prompts.form] if method == "codevqa" else ("",)
    if prompts.knowledge and method == "codevqa":
        programs = (*programs, KNOWS)
    cases = [(question, program) for question in QUESTIONS[POOLS[pool]] for program in programs]
    captions, preamble = told_captions(prompts.captions), ours.writer.preamble(prompts.form)
    theirs = of_release(pool, preamble, pictures, method=method, questions=cases, captions=captions, reply=reply)
    models = Models(ours.model, ours.matcher, FakeCaptioner(ours.caption, grid=6))
    with CodeVQA(ours.writer, models, SETTINGS) as vqa:
        for (question, program), told in zip(cases, theirs, strict=True):
            answer = ours.answer(vqa, question, program, method)
            assert ours.asked == [{name: one[name] for name in ("prompt", "max_tokens")} for one in told["asked"]]
            # The tokenizer of the matcher knows no capitals.
            matched = [request.text.lower() for request in ours.matcher.matches.requests]
            assert matched == [text.lower() for text in told["matched"]]
            assert (answer.text, answer.fallback) == (told["answer"].lower(), program == FAILS)


def test_positions_are_those_of_the_release(pictures: Path, tmp_path: Path) -> None:
    """Of one matcher's maps, a token each: which of them are averaged, and where the peak is."""
    question = "Is the (red) ball on the large car, or is the red car in the park with cats?"
    phrases = ("red car", "red", "the red ball", "large cat", "two zebras", "cats")
    calls = ", ".join(f"get_pos(img, {phrase!r})" for phrase in phrases)
    program = f'img = open_image("Image13")\nanswer = [{calls}]'
    matcher = BlipMatcher.from_pretrained(write_blip(tmp_path / "matcher", "matcher", seed=1), device="cpu", block=1)
    ours = Ours(pool_of(GQA), pictures, "Yes")
    noise = np.random.default_rng(1).integers(0, 255, (8, 8, 3), np.uint8)
    ours.images = [Image.fromarray(noise).resize((64, 64), Image.Resampling.NEAREST)]
    with CodeVQA(ours.writer, Models(ours.model, matcher, FakeCaptioner(grid=4)), SETTINGS) as vqa:
        found = ours.answer(vqa, question, program, "codevqa")
    text = bare(question)
    asked = MatchRequest(load_picture(ours.images[0]), text.strip("?"))
    ((maps, _),) = matcher.token_maps([asked])
    wide = np.ones((release_kit.GRID // matcher.grid,) * 2)
    case = {
        "tokens": {one: matcher._tokens([one])[0][0].tolist() for one in (text, *phrases)},
        "maps": {asked.text: [np.kron(one, wide).ravel().tolist() for one in maps]},
    }
    (told,) = of_release(
        GQA, "", pictures, method="codevqa", questions=[(question, program)], captions={}, reply="", **case
    )
    assert ast.literal_eval(found.text) == ast.literal_eval(told["answer"])
    assert len(set(ast.literal_eval(found.text))) == 4


@pytest.mark.parametrize("kind", ["", "_codevqa"])
@pytest.mark.parametrize("task", sorted(set(POOLS.values())))
def test_the_numbers_are_those_of_the_release_s_configuration(task: str, kind: str) -> None:
    lavis, ours = Path(RELEASE) / "lavis", load(task)
    told = yaml.safe_load((lavis / f"projects/pnp-vqa/eval/{task}_eval_gpt3{kind}.yaml").read_text())
    parts = yaml.safe_load((lavis / "configs/models/pnp-vqa/pnp_vqa_gpt3.yaml").read_text())["model"]
    reader, run = parts["question_answering_model"], told["run"]
    assert (ours.shots, ours.reading_shots) == (told["model"]["examples"]["num_examples"],) * 2
    assert ours.captions == told["model"].get("captions_per_image", reader["captions_per_image"])
    assert (ours.caption_draws, SETTINGS.query.patches) == (run["num_captions"], run["num_patches"])
    assert (SETTINGS.query.attempts, SETTINGS.query.max_tokens) == (reader["num_tries"], run["max_len"])
    assert (ours.image_labels is not None) == told["model"].get("left_right_images", False)
    matching = inspect.signature(BlipMatcher.__init__).parameters
    assert (matching["block"].default, matching["average"].default) == (run["block_num"], "words")


def test_the_preset_paper_has_the_release_s_checkpoints() -> None:
    parts = yaml.safe_load((Path(RELEASE) / "lavis/configs/models/pnp-vqa/pnp_vqa_gpt3.yaml").read_text())["model"]
    assert PRESETS["paper"].matcher == f"blip:{parts['image_question_matching_model']['finetuned']}"
    assert PRESETS["paper"].captioner == f"blip:{parts['image_captioning_model']['finetuned']}"
