"""With the files and settings of the paper's release, models are asked what it asks them, byte for byte.

The reference is the release's own code, run beside ours (:mod:`release_kit`); ``CODEVQA_RELEASE`` says where its
checkout is.
"""

import ast
import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import release_kit
import torch
import yaml  # type: ignore[import-untyped, unused-ignore]
from PIL import Image
from release_kit import GRID, Release, Script
from tiny import write_blip

from codevqa import Answer, CodeVQA, Models, Writer
from codevqa.core.images import load_picture
from codevqa.core.trace import Form, Method
from codevqa.models.blip import BlipMatcher
from codevqa.models.fakes import FakeCaptioner, FakeDetector, FakeMatcher, ScriptedLM
from codevqa.models.protocols import MatchRequest
from codevqa.presets.compat import compat_layer
from codevqa.presets.configuration import configure
from codevqa.presets.presets import PRESETS
from codevqa.prompts import load_prompt_set

RELEASE = os.environ.get("CODEVQA_RELEASE", "")
pytestmark = pytest.mark.skipif(not RELEASE, reason="CODEVQA_RELEASE names no checkout of the paper's release")
SETTINGS = replace(configure("paper", [compat_layer("release")]).settings, remember=0, ahead=False)
GQA = "gqa_programs_and_questions_nocomments3b.json"
POOLS = (
    GQA,
    "covr_programs_and_questions50b.json",
    "covr_programs_and_questions50b_find.json",
    "nlvr2_programs_and_questions50.json",
    "nlvr2_programs_and_questions50_find.json",
    "vqav2_programs_and_questions50_find.json",
    "okvqa_programs_and_questions50.json",
)
QUESTIONS: dict[Form, tuple[str, ...]] = {
    "image": (
        *("What's on the MAN's head; a hat?", "Name the  dog", "Why #1 (or 2)?", "a " * 60 + "end?"),
        'Is the "STOP" sign (on the left) Red, or  green?',
        *map("Who {} it?".format, range(9)),
    ),
    "set": (
        *("There are 2  images that contain a Dog.", "How many images show at least 3 women: all?", "Is it " * 22),
        *("The LEFT image shows two dogs!", "Both  images #1 and #2 contain; a cat.", "Is there a dog in both images?"),
    ),
}
CAPTIONS = ["a STOP sign - on a pole", "the End.", "two of them", "a man's hat", "red, green", "7 x 8 tiles", "an eye"]
FAILS = "answer = 1 / 0"
KNOWS = 'answer = knowledge_query("Who wrote the BOOK?")'
ASKS = 'answer = query({}, "Is the \\"STOP\\" sign (there) RED?")'
PROGRAMS: dict[Form, tuple[str, ...]] = {
    "image": (f'img = open_image("Image13.jpg")\n{ASKS.format("img")}', FAILS),
    "set": (
        *(f'images = open_images("ImageSet7")\n{ASKS.format(target)}' for target in ("images[1]", "images")),
        FAILS,
    ),
}


class Embeds:
    """The retriever that the reference has."""

    name = "reference"

    def embed(self, sentences: Sequence[str]) -> Any:
        return np.array([release_kit.embed(sentence) for sentence in sentences], np.float32)


class Both:
    """The release and ours over the same scripted models, with a pool of the release as it is."""

    def __init__(self, pool: str, method: Method, folder: Path, script: Script, matcher: Any) -> None:
        prompts = load_prompt_set(Path(RELEASE) / pool)
        if prompts.form == "set":  # the release lacks the preamble that it names
            prompts = replace(prompts, preamble=load_prompt_set("covr").preamble)
        self.prompts, self.method, self.script = prompts, method, script
        (folder / "VG_100K").mkdir()
        self.pictures = [
            folder / "VG_100K" / f"{number}.jpg" for number in ((1,) if prompts.form == "image" else (1, 2))
        ]
        script.captions = {number: [caption * number for caption in CAPTIONS[: prompts.captions]] for number in (1, 2)}
        for number, path in enumerate(self.pictures, 1):
            noise = np.random.default_rng(number).integers(0, 255, (8, 8, 3), np.uint8)
            noise[0, 0, 0] = number  # tells whose captions are read
            Image.fromarray(noise).resize((64, 64), Image.Resampling.NEAREST).save(path, "PNG")
        caption_cycles = {number: cycle(captions) for number, captions in script.captions.items()}
        captioner = FakeCaptioner(
            lambda request: next(caption_cycles[int(np.asarray(request.picture.pixels)[0, 0, 0])]), grid=matcher.grid
        )
        model = ScriptedLM(lambda request: script.complete(request.prompt, request.max_tokens))
        detector = FakeDetector() if "_find" in pool else None
        writer = Writer(model, {prompts.form: prompts}, Embeds(), SETTINGS.writer)
        self.ours = CodeVQA(writer, Models(model, matcher, captioner, detector), SETTINGS)
        (folder / "preamble.py").write_text(self.ours.writer.preamble(prompts.form))
        self.theirs = Release(Path(RELEASE), pool, method, folder / "preamble.py", script)

    def ask(self, question: str, program: str) -> tuple[Answer, str]:
        """Asks both one question, and returns their answers: they must have asked their models the same."""
        self.script.program = program
        answer = self.ours.ask(self.pictures, question, form=self.prompts.form, method=self.method)
        ours, self.script.asked = self.script.asked, []
        release_answer = self.theirs.answer(question, self.pictures)
        theirs, self.script.asked = self.script.asked, []
        assert ours == theirs
        return answer, release_answer


@pytest.mark.parametrize("reply", ["Yes", ""])
@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
@pytest.mark.parametrize("pool", POOLS)
def test_models_are_asked_what_the_release_asks_them(pool: str, method: Method, reply: str, tmp_path: Path) -> None:
    script, matcher = Script(), FakeMatcher(6)
    script.reply = reply
    both = Both(pool, method, tmp_path, script, matcher)
    form = both.prompts.form
    programs = (*PROGRAMS[form], *([KNOWS] if both.prompts.knowledge else ())) if method == "codevqa" else ("",)
    with both.ours:
        for question, program in product(QUESTIONS[form], programs):
            answer, release_answer = both.ask(question, program)
            assert (answer.text, answer.fallback) == (release_answer.lower(), program == FAILS)
            # The tokenizer of the matcher knows no capitals.
            assert [request.text.lower() for request in matcher.matches.requests] == [
                text.lower() for text in script.matched
            ]


def test_positions_are_those_of_the_release(tmp_path: Path) -> None:
    """Of one matcher's maps, a token each: which of them are averaged, and where the peak is."""
    matcher = BlipMatcher.from_pretrained(write_blip(tmp_path / "matcher", "matcher", seed=1), device="cpu", block=1)

    class Reading(Script):
        def tokens(self, text: str) -> list[int]:
            collected: list[int] = matcher._tokens([text])[0][0].tolist()
            return collected

        def maps(self, text: str) -> torch.Tensor:
            ((maps, _),) = matcher.token_maps([MatchRequest(load_picture(both.pictures[0]), text)])
            wide = np.ones((GRID // matcher.grid,) * 2)
            return torch.tensor(np.array([np.kron(token_map, wide) for token_map in maps]))

    both = Both(GQA, "codevqa", tmp_path, Reading(), matcher)
    phrases = ("red car", "red", "the red ball", "large cat", "two zebras", "cats")
    calls = ", ".join(f"get_pos(img, {phrase!r})" for phrase in phrases)
    program = f'img = open_image("Image13")\nanswer = [{calls}]'
    with both.ours:
        answer, release_answer = both.ask(
            "Is the (red) ball on the large car, or is the red car in the park with cats?", program
        )
    assert ast.literal_eval(answer.text) == ast.literal_eval(release_answer)
    assert len(set(ast.literal_eval(answer.text))) == 4


@pytest.mark.parametrize("kind", ["", "_codevqa"])
@pytest.mark.parametrize("task", sorted({pool.partition("_")[0] for pool in POOLS}))
def test_numbers_and_checkpoints_are_those_of_the_release_s_configuration(task: str, kind: str) -> None:
    lavis, ours = Path(RELEASE) / "lavis", load_prompt_set(task)
    configuration = yaml.safe_load((lavis / f"projects/pnp-vqa/eval/{task}_eval_gpt3{kind}.yaml").read_text())
    parts = yaml.safe_load((lavis / "configs/models/pnp-vqa/pnp_vqa_gpt3.yaml").read_text())["model"]
    reader, run = parts["question_answering_model"], configuration["run"]
    assert (ours.shots, ours.reading_shots) == (configuration["model"]["examples"]["num_examples"],) * 2
    assert ours.captions == configuration["model"].get("captions_per_image", reader["captions_per_image"])
    assert (ours.caption_draws, SETTINGS.query.patches) == (run["num_captions"], run["num_patches"])
    assert (SETTINGS.query.attempts, SETTINGS.query.max_tokens) == (reader["num_tries"], run["max_len"])
    assert (ours.image_labels is not None) == configuration["model"].get("left_right_images", False)
    matching = inspect.signature(BlipMatcher.__init__).parameters
    assert (matching["block"].default, matching["average"].default) == (run["block_num"], "words")
    assert PRESETS["paper"].matcher == f"blip:{parts['image_question_matching_model']['finetuned']}"
    assert PRESETS["paper"].captioner == f"blip:{parts['image_captioning_model']['finetuned']}"
