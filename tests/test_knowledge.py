"""Prompt sets for VQAv2 and OK-VQA, and the knowledge that they need."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import engine_kit
import pytest
from PIL import Image as PILImage

from codevqa import CodeVQA
from codevqa.core.errors import ProgramError
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form
from codevqa.models.base import Box, GenerationRequest, Message
from codevqa.models.fakes import FakeDetector
from codevqa.prompts import PromptSet, load

RED, BLUE = (PILImage.new("RGB", (60, 40), color) for color in ("red", "blue"))
BOXES = FakeDetector([Box(0, 0, 9, 9, 0.9), Box(20, 0, 29, 9, 0.8)])
DISH = 'dish = visual_query(img, "What dish is it?")\nanswer = knowledge_query("Where is " + dish + " from?")'


def read(request: GenerationRequest) -> str:
    """Sees a pizza everywhere, knows a number, and talks."""
    if "Context:" in str(request.prompt):
        return " Pizza.\n"
    asked = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
    if "ears" in asked.rsplit("Q: ", 1)[-1]:
        return " Lots of them.\n"
    return " Four legs.\n" if "How many" in asked.rsplit("Q: ", 1)[-1] else " Italy\n"


def engine(
    program: str = DISH, prompts: str | PromptSet = "okvqa", *, detector: FakeDetector | None = None, **query: Any
) -> CodeVQA:
    chosen = load(prompts) if isinstance(prompts, str) else prompts
    sets: dict[Form, PromptSet] = {"image": chosen, "set": load("covr")}
    numbers = QuerySettings(captions=2, patches=5, **query)
    return engine_kit.engine(program, read, prompts=sets, detector=detector, repairs=0, query=numbers, workers=4)


# -- knowledge -------------------------------------------------------------------------------------------------------


def test_what_is_seen_is_asked_of_captions_and_what_is_known_of_the_reader_alone() -> None:
    with engine() as vqa:
        answer = vqa.ask(RED, "Where is this dish from?")
    assert (answer.text, answer.error) == ("italy", None)
    seen, known = answer.trace.calls
    assert (seen.name, seen.value, seen.evidence[0].kind) == ("visual_query", "pizza", "pnpvqa")
    assert known.arguments == {"question": "Where is pizza from?"}
    evidence = known.evidence[0]
    assert (evidence.kind, evidence.images, evidence.text) == ("knowledge", (), "Where is pizza from?")
    assert evidence.completion == " Italy" and "Context" not in evidence.prompt


def test_the_prompt_holds_the_knowledge_of_the_programs_shown_in_the_releases_layout() -> None:
    with engine() as vqa:
        prompt = vqa.ask(RED, "Where is this dish from?").trace.calls[1].evidence[0].prompt
    okvqa = load("okvqa")
    shown = [one for one in okvqa.knowledge if one.id in {example.id for example in okvqa.examples[:7]}]
    assert 3 <= len(shown) < len(okvqa.knowledge)
    examples = "".join(f"Q: {one.question}\nA: {one.answer}\n===\n" for one in shown)
    assert prompt == f"Answer each question.\n===\n{examples}Q: Where is pizza from?\nA:"


def test_a_chat_model_gets_knowledge_as_turns() -> None:
    with engine(form="chat") as vqa:
        assert vqa.run(RED, "answer = knowledge_query('How many legs has a dog?')").text == "4"
        request = vqa.models.reader.requests[-1]  # type: ignore[attr-defined]
    assert isinstance(request.prompt, tuple)
    assert request.prompt[-1] == Message("user", "How many legs has a dog? Answer with a number.")
    assert [turn.role for turn in request.prompt[:3]] == ["system", "user", "assistant"]
    assert request.prompt[2].content == load("okvqa").knowledge[0].answer
    assert (request.max_tokens, request.stop) == (10, ("\n",))


# -- the release -----------------------------------------------------------------------------------------------------

RELEASE = Path(os.environ.get("CODEVQA_RELEASE", ""))
BANKS: dict[str, Form] = {
    "okvqa_programs_and_questions50.json": "image",
    "vqav2_programs_and_questions50_find.json": "image",
    "nlvr2_programs_and_questions50_find.json": "set",
    "covr_programs_and_questions50b_find.json": "set",
}


@pytest.mark.skipif(not RELEASE.name, reason="CODEVQA_RELEASE names no folder with the paper's release")
def test_programs_of_the_release_run_but_those_that_were_published_broken() -> None:
    failed = []
    with engine(detector=BOXES) as vqa:
        for file, form in BANKS.items():
            programs = [one for one in load(RELEASE / file).examples if re.search(r"find_object|_query", one.program)]
            assert len(programs) >= 7
            for one in programs:
                try:
                    assert vqa.run([RED, BLUE][: 1 + (form == "set")], one.program, form=form).text
                except ProgramError:
                    failed.append(one.id)
    # An unknown name in the first two, syntax in the others.
    assert set(failed) == {"5734855", "77904", "82401", "53346", "52662"}
