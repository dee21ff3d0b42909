"""What a reader is asked: of captions, with a second witness before it, and of what it knows itself."""

from dataclasses import replace
from typing import Any

import engine_kit
import pytest
from engine_kit import RED
from reading_kit import read

from codevqa import CodeVQA
from codevqa.core.question_kind import question_kind
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import GenerationRequest, Message
from codevqa.primitives.reading import render_reading_chat
from codevqa.primitives.witness import describe_question, stated_number
from codevqa.prompts import PromptSet, load_prompt_set

BANKS: dict[Form, PromptSet] = {"image": load_prompt_set("gqa"), "set": load_prompt_set("covr")}
SMALL = QuerySettings(captions=1, patches=4)


def test_a_chat_lists_captions_and_says_what_is_wanted() -> None:
    turns = render_reading_chat(load_prompt_set("gqa").reading[:1], [["a dog", "a cat"]], "is there a DOG?", "image")
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "user"]
    assert turns[-1].content == "Captions:\n- a dog\n- a cat\nQuestion: Is there a dog? Answer yes or no."
    pair = render_reading_chat([], [["a"], ["b"]], "Is it red or blue?", "set", ("Left image", "Right image"))
    assert pair[-1].content == "Left image:\n- a\nRight image:\n- b\nQuestion: Is it red or blue? Answer red or blue."


@pytest.mark.parametrize(
    ("question", "reply", "answer"),
    [
        ("Is there a dog?", "No, there is no dog.", "no"),
        ("Is there a dog?", "The answer is yes.", "yes"),
        ("Is there a dog?", "Answer: Yes", "yes"),
        ("Is there a dog?", "I think so, yes", "yes"),
        ("Is there a dog?", "<thinking>no?</thinking>**Yes**", "yes"),
        ("Is there a dog?", r"\boxed{no}", "no"),
        ("What color?", "answer: **red**", "red"),
        ("What color?", "[THINK]blue[/THINK]<|begin_of_box|>red<|end_of_box|>", "red"),
        ("How many dogs?", " Four dogs.\nAnd", "4"),
        ("What color?", '"Red."', "red"),
        ("What is it?", "a dog", "a dog"),
    ],
)
def test_an_answer_is_taken_out_of_a_sentence(question: str, reply: str, answer: str) -> None:
    assert question_kind(question).read(reply) == answer
    assert read(question, ScriptedLM(reply), BANKS, SMALL).text == answer


def test_a_reader_that_can_only_be_talked_with_is_talked_with() -> None:
    for chat, settings in ((False, SMALL), (True, SMALL), (True, replace(SMALL, form="completion"))):
        asked = read("Is it?", ScriptedLM("yes"), BANKS, settings, chat=chat).evidence[0].prompt
        assert asked.startswith("Please answer") != (chat and settings is SMALL)


@pytest.mark.parametrize(
    ("question", "logits", "verdict"),
    [
        ("Are there no cups?", [9.0], "no"),
        ("Are there no cups?", [-9.0], "yes"),
        ("Is there a cup or a plate?", [-9.0, 9.0], "yes"),
        ("Is there a cup or a plate?", [-9.0, 1.0], ""),
        ("Is there a cup and a plate?", [-9.0], "no"),
        ("Is there a cup and a plate?", [9.0, 1.0], ""),
        ("Are there at least two cups?", [9.0, 9.0, 9.0, -9.0], "yes"),
        ("Are there fewer than two cups?", [-9.0], "yes"),
        ("Are there at most two cups?", [9.0, 9.0, 1.0], ""),
        ("How many cups are there?", [-9.0], "0"),
        ("How many cups are there?", [9.0, 9.0, -9.0], "2"),
        ("How many cups are there?", [9.0, 1.0], ""),
        ("Is the cup red or blue?", [-9.0, 9.0], "blue"),
        ("Is the cup red or blue?", [9.0, 9.0], ""),
    ],
)
def test_what_follows_from_descriptions_that_fit(question: str, logits: list[float], verdict: str) -> None:
    asked = describe_question(question)
    assert len(asked.texts) >= len(logits)
    assert asked.verdict(logits, 0.01) == verdict
    # Asked one after the other, no more than these are matched.
    assert not any(asked.suffice(logits[:count], 0.01) for count in range(1, len(logits)))


DESCRIPTIONS: dict[str, tuple[str, ...]] = {
    "Is there exactly one red dish?": ("a red dish", "two red dishes"),
    "How many cherries are there on the plate?": ("a cherry on the plate", "two cherries on the plate"),
    "How many people are sitting?": ("a person sitting", "two people sitting"),
    "How many buses are there?": ("a bus", "two buses"),
    "There is at least 1 block closely touching a wall.": ("a block closely touching a wall",),
    # Where the description would not be good English, there is none.
    "Are there exactly two sheep?": (),
    "How many knives are there?": (),
    "Does the bus have wheels?": (),
    "Is the lettuce to the right or to the left of the food?": (),
    "The left image shows a canoe.": (),
    "There is a bench with a cat and two bags on it.": ("a bench with a cat and two bags on it",),
}


def test_a_description_is_good_english_or_there_is_none() -> None:
    for question, texts in DESCRIPTIONS.items():
        actual = describe_question(question, statements=True).texts
        assert (actual[: len(texts)] if texts else actual) == texts


@pytest.mark.parametrize(
    ("logit", "witness", "text", "kinds"),
    [
        (-9.0, True, "no", ["itm"]),
        (1.0, True, "yes", ["itm", "pnpvqa"]),
        (-9.0, False, "yes", ["pnpvqa"]),  # the baseline only reads
    ],
)
def test_only_a_sure_witness_answers_alone(logit: float, witness: bool, text: str, kinds: list[str]) -> None:
    matcher = FakeMatcher(6, logit=lambda request: logit if request.text == "a red cup" else 0.0)
    reader, settings = ScriptedLM("yes"), replace(SMALL, witness=True)
    reading = read("Is there a red cup?", reader, BANKS, settings, matcher=matcher, witness=witness)
    assert (reading.text, [evidence.kind for evidence in reading.evidence]) == (text, kinds)
    assert len(reader.requests) == kinds.count("pnpvqa")
    if witness:
        assert (reading.evidence[0].text, reading.evidence[0].scores[0]) == ("a red cup", logit)


@pytest.mark.parametrize(
    ("question", "captions", "number"),
    [
        ("How many blocks are in the tower?", ["a tower of two blocks", "two red blocks", "a block"], "2"),
        ("How many red cups are on the table?", ["two cups", "three red cups and a plate"], "3"),
        ("How many dogs are there?", ["two dogs", "three dogs"], ""),  # they disagree
        ("What are the two dogs doing?", ["two dogs"], ""),
        ("How many dogs are there?", ["a dog on a couch", "a dog", "a couch"], "1"),
        ("How many dogs are there?", ["a dog on a couch", "a couch"], ""),  # said once
        ("How many dogs are there?", ["a dog", "a dog", "some dogs"], ""),
        ("How many sheep are there?", ["a sheep", "a sheep on grass"], ""),  # who knows
    ],
)
def test_a_number_is_stated_where_captions_agree(question: str, captions: list[str], number: str) -> None:
    assert stated_number(question, captions) == number


@pytest.mark.parametrize(
    ("caption", "logit", "witness", "text", "kinds"),
    [
        ("two cups", 9.0, True, "2", ["stated"]),
        ("cups", 0.0, True, "7", ["itm", "pnpvqa"]),
        ("two cups", 9.0, False, "7", ["pnpvqa"]),  # the baseline only reads
    ],
)
def test_stated_numbers_need_no_reader(caption: str, logit: float, witness: bool, text: str, kinds: list[str]) -> None:
    settings = replace(SMALL, witness=True, stated=True)
    fakes: Any = {"matcher": FakeMatcher(6, logit=lambda request: logit), "captioner": FakeCaptioner(caption, grid=6)}
    reading = read("How many cups are there?", ScriptedLM("7"), BANKS, settings, witness=witness, **fakes)
    assert (reading.text, [evidence.kind for evidence in reading.evidence]) == (text, kinds)
    assert reading.evidence[-1].captions == ((caption,),)


DISH = 'dish = visual_query(img, "What dish is it?")\nanswer = knowledge_query("Where is " + dish + " from?")'


def knows(request: GenerationRequest) -> str:
    """Sees a pizza everywhere, knows a number, and talks."""
    if "Context:" in str(request.prompt):
        return " Pizza.\n"
    asked = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
    if "ears" in asked.rsplit("Q: ", 1)[-1]:
        return " Lots of them.\n"
    return " Four legs.\n" if "How many" in asked.rsplit("Q: ", 1)[-1] else " Italy\n"


def engine(program: str = DISH, **query: Any) -> CodeVQA:
    sets: dict[Form, PromptSet] = {"image": load_prompt_set("okvqa"), "set": load_prompt_set("covr")}
    numbers = QuerySettings(captions=2, patches=5, **query)
    return engine_kit.engine(program, knows, prompts=sets, repairs=0, query=numbers, workers=4)


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
    okvqa = load_prompt_set("okvqa")
    shown = [entry for entry in okvqa.knowledge if entry.id in {example.id for example in okvqa.examples[:7]}]
    assert 3 <= len(shown) < len(okvqa.knowledge)
    examples = "".join(f"Q: {entry.question}\nA: {entry.answer}\n===\n" for entry in shown)
    assert prompt == f"Answer each question.\n===\n{examples}Q: Where is pizza from?\nA:"


def test_a_chat_model_gets_knowledge_as_turns() -> None:
    with engine(form="chat") as vqa:
        assert vqa.run(RED, "answer = knowledge_query('How many legs has a dog?')").text == "4"
        request = vqa.models.reader.requests[-1]  # type: ignore[attr-defined]
    assert isinstance(request.prompt, tuple)
    assert request.prompt[-1] == Message("user", "How many legs has a dog? Answer with a number.")
    assert [turn.role for turn in request.prompt[:3]] == ["system", "user", "assistant"]
    assert request.prompt[2].content == load_prompt_set("okvqa").knowledge[0].answer
    assert (request.max_tokens, request.stop) == (10, ("\n",))
