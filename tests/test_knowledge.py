"""What programs ask of the reader's knowledge."""

from typing import Any

import engine_kit
from engine_kit import RED

from codevqa import CodeVQA
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form
from codevqa.models.base import GenerationRequest, Message
from codevqa.prompts import PromptSet, load

DISH = 'dish = visual_query(img, "What dish is it?")\nanswer = knowledge_query("Where is " + dish + " from?")'


def read(request: GenerationRequest) -> str:
    """Sees a pizza everywhere, knows a number, and talks."""
    if "Context:" in str(request.prompt):
        return " Pizza.\n"
    asked = request.prompt if isinstance(request.prompt, str) else request.prompt[-1].content
    if "ears" in asked.rsplit("Q: ", 1)[-1]:
        return " Lots of them.\n"
    return " Four legs.\n" if "How many" in asked.rsplit("Q: ", 1)[-1] else " Italy\n"


def engine(program: str = DISH, **query: Any) -> CodeVQA:
    sets: dict[Form, PromptSet] = {"image": load("okvqa"), "set": load("covr")}
    numbers = QuerySettings(captions=2, patches=5, **query)
    return engine_kit.engine(program, read, prompts=sets, repairs=0, query=numbers, workers=4)


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
