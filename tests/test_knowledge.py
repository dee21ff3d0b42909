"""Prompt sets for VQAv2 and OK-VQA, and what they need: knowledge, detectors, longer captions."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import engine_kit
import pytest
from PIL import Image as PILImage

from codevqa import CodeVQA
from codevqa.core.errors import InputError, ProgramError, UnknownNameError
from codevqa.core.settings import QuerySettings, WriterSettings
from codevqa.core.trace import Form
from codevqa.models.base import Box, GenerationRequest, Message
from codevqa.models.fakes import FakeDetector, ScriptedLM
from codevqa.prompts import PromptSet, load
from codevqa.writing.writer import Writer

RED, BLUE = (PILImage.new("RGB", (60, 40), color) for color in ("red", "blue"))
PACKAGE = Path(__file__).resolve().parents[1] / "prompts"
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
) -> AbstractContextManager[CodeVQA]:
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


def test_a_program_that_was_shown_none_is_answered_after_all_knowledge_examples() -> None:
    with engine() as vqa:
        prompt = vqa.run(RED, "answer = knowledge_query('Where is it?')").trace.calls[0].evidence[0].prompt
    assert prompt.count("\nQ: ") == 1 + len(load("okvqa").knowledge)


def test_a_chat_model_gets_knowledge_as_turns() -> None:
    with engine(form="chat") as vqa:
        assert vqa.run(RED, "answer = knowledge_query('How many legs has a dog?')").text == "4"
        request = vqa.models.reader.requests[-1]  # type: ignore[attr-defined]
    assert isinstance(request.prompt, tuple)
    assert request.prompt[-1] == Message("user", "How many legs has a dog? Answer with a number.")
    assert [turn.role for turn in request.prompt[:3]] == ["system", "user", "assistant"]
    assert request.prompt[2].content == load("okvqa").knowledge[0].answer


def test_an_answer_from_knowledge_is_short_and_fits_its_question() -> None:
    with engine() as vqa:
        assert vqa.run(RED, "answer = knowledge_query('How many legs has a dog?')").text == "4"
        request = vqa.models.reader.requests[-1]  # type: ignore[attr-defined]
        assert (request.max_tokens, request.stop) == (10, ("\n",))


def test_knowledge_that_is_sure_to_be_asked_for_is_asked_at_once_and_the_same_only_once() -> None:
    asked = [f"answer = knowledge_query('Who is {name}?')" for name in ("Ann", "Bob", "Cleo", "Ann")]
    with engine() as vqa:
        vqa.run(RED, "\n".join(asked))
        reader: Any = vqa.models.reader
        assert reader.batches == [3]


@pytest.mark.parametrize("prompts", ["gqa", "vqav2"])
def test_programs_know_nothing_where_the_prompt_set_does_not_say_so(prompts: str) -> None:
    with engine(prompts=prompts) as vqa:
        assert "knowledge_query" not in vqa.primitives.names
        with pytest.raises(ProgramError, match="knowledge_query"):
            vqa.run(RED, "answer = knowledge_query('Where is it?')")


def test_a_chat_is_told_of_the_primitives_that_the_prompt_set_has() -> None:
    for name, told in (("okvqa", {"visual_query", "knowledge_query"}), ("gqa", {"query", "get_pos"})):
        writer = Writer(ScriptedLM("", chat=True), load(name), settings=WriterSettings(selection="fixed"))
        request, _ = writer.request("What is it?", "image")
        assert isinstance(request.prompt, tuple)
        assert set(re.findall(r"\b(\w+)\(", request.prompt[0].content)) == told


# -- detectors -------------------------------------------------------------------------------------------------------


def test_without_a_detector_nothing_shown_calls_one() -> None:
    with engine(prompts="vqav2") as vqa:
        prompt = vqa.prompt("How many dogs are there?", shots=43)
        assert len(vqa.writer.prompts["image"].examples) == 43
    assert "find_object" not in prompt
    assert "get_pos(img: Image, object: str) -> " in prompt
    assert "How many kinds of vegetables" in prompt  # counting is still shown


def test_an_unknown_primitive_of_a_prompt_set_is_named() -> None:
    mine = dataclasses.replace(load("okvqa"), primitives=("open_image", "smell"))
    with engine(prompts=mine) as vqa, pytest.raises(UnknownNameError, match="'smell'"):
        vqa.prompt("What is it?")


# -- the banks -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PACKAGE / "okvqa", tmp_path / "mine"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"id": "okvqa-001", "question": "Who?"}, "knowledge.jsonl, line 1: answer is missing"),
        ({"id": "x", "question": "Who?", "answer": "she", "captions": []}, "line 1: unknown key 'captions'"),
    ],
)
def test_a_malformed_knowledge_example_says_where(folder: Path, line: dict[str, object], says: str) -> None:
    (folder / "knowledge.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(InputError, match=re.escape(says)):
        load(folder)


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


@pytest.mark.skipif(not RELEASE.name, reason="CODEVQA_RELEASE names no folder with the paper's release")
def test_knowledge_of_the_release_belongs_to_its_programs() -> None:
    with_knowledge = load(RELEASE / "okvqa_programs_and_questions50.json")
    programs, knowledge = with_knowledge.examples, with_knowledge.knowledge
    asking = [one.id for one in programs if "knowledge_query" in one.program]
    assert [one.id for one in with_knowledge.knowledge_of(asking)] == [one.id for one in knowledge]
    assert len(with_knowledge.knowledge_of(asking[:2])) == 2
