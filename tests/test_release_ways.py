"""What the paper's release does otherwise, and what of it is so by a setting; over fake models, in a real sandbox."""

from dataclasses import replace
from typing import Any, Literal

import engine_kit
import numpy as np
import pytest
from engine_kit import GREEN, RED

from codevqa import QuerySettings, Settings, Writer, WriterSettings
from codevqa.core.errors import ModelError
from codevqa.core.question_kind import Wording
from codevqa.core.trace import ImageRef
from codevqa.models.fakes import FakeMatcher, ScriptedLM
from codevqa.primitives import Image, primitive
from codevqa.prompts import load_prompt_set

PLAIN = WriterSettings(selection="fixed", repairs=0, fit=False, form="completion")
RELEASE = Settings(
    writer=replace(PLAIN, wording="release"), query=QuerySettings(wording="release", fit=False), answers="release"
)
TOLD = Settings(writer=PLAIN, query=QuerySettings(captions=2, patches=5))
PAIR = "Both pictures show a RED ball."


def engine(program: str, settings: Settings = TOLD, *, says: str = "yes", matcher: FakeMatcher | None = None) -> Any:
    prompts: Any = {"image": load_prompt_set("gqa"), "set": load_prompt_set("nlvr2")}
    return engine_kit.engine(program, says, settings=settings, prompts=prompts, matcher=matcher)


@pytest.mark.parametrize(
    ("wording", "shown"),
    [
        (None, "Both pictures show a red ball."),  # as the programs of the bank do
        ("asked", "Is it true that both pictures show a red ball?"),
        ("release", "Is it true that both pictures show a red ball?"),
    ],
)
def test_who_writes_sees_the_wording_and_the_user_their_own_sentence(wording: Wording | None, shown: str) -> None:
    settings = replace(TOLD, writer=replace(PLAIN, wording=wording))
    with engine("answer = query(images[0], 'Is there a red ball?')", settings) as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
        prompt = vqa.prompt(PAIR, form="set")
    assert answer.program is not None and answer.program.prompt == prompt
    assert prompt.endswith(f"\n# Image Set 7: {shown}")
    assert (answer.question, answer.program.question, answer.text) == (PAIR, PAIR, "yes")


@pytest.mark.parametrize(
    ("wording", "text"), [(None, 'Is the "man" left of the woman'), ("release", "is the man left of the woman")]
)
def test_a_position_is_looked_for_in_the_whole_question(wording: Wording | None, text: str) -> None:
    matcher = FakeMatcher(6)
    settings = Settings(query=QuerySettings(wording=wording), position_text="question")
    with engine("", settings, matcher=matcher) as vqa:
        vqa.run(RED, "answer = get_pos(img, 'man')[0]", question='Is the "man" left of the woman?')
    assert [(request.text, request.focus) for request in matcher.matches.requests] == [(text, "man")]


@pytest.mark.parametrize(("at", "position"), [("centre", (3.5, 11.5)), ("corner", (3.0, 12.0))])
def test_positions_are_a_patch_s_centre_or_corner(
    at: Literal["centre", "corner"], position: tuple[float, float]
) -> None:
    relevance = np.zeros((24, 24), np.float32)
    relevance[12, 3] = 1
    with engine("", Settings(position_at=at), matcher=FakeMatcher(24, relevance=relevance)) as vqa:
        assert vqa.run(RED, "answer = get_pos(img, 'man')").value == position


def test_a_program_goes_on_where_the_reader_says_nothing() -> None:
    with engine("answer = 'no' if query(images[0], 'Is there a ball?') == '' else 'yes'", says="") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    (call,) = [candidate for candidate in answer.trace.calls if candidate.name == "query"]
    assert (answer.text, answer.fallback, answer.error) == ("no", False, None)
    assert (call.value, call.error, call.evidence[-1].completion) == ("", None, "")
    assert str(call) == "query(image 1, 'Is there a ball?') -> ''"


@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
def test_an_answer_that_says_nothing_is_an_error_unless_it_is_wanted(method: Any) -> None:
    with engine("answer = 1 / 0", says="") as vqa, pytest.raises(ModelError, match="an empty answer 5 times"):
        vqa.ask([RED, GREEN], PAIR, method=method)
    with engine("answer = 1 / 0", RELEASE, says="") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR, method=method)
    assert (answer.text, answer.fallback) == ("", method == "codevqa")


@pytest.mark.parametrize(
    ("program", "text", "value"),
    [
        *(("answer = True", "True", True), ("answer = None", "None", None), ("answer = ''", "", "")),
        ("answer = 4 / 2", "2.0", 2.0),
        ("answer = ['a', images[1]]", "['a', 1]", ["a", ImageRef(2)]),
        ("x = 1", "no", None),
    ],
)
def test_what_a_program_leaves_as_the_release_takes_it(program: str, text: str, value: object) -> None:
    with engine(program, RELEASE) as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    assert (answer.text, answer.value, answer.fallback, answer.error) == (text, value, False, None)


def test_a_whole_set_is_read_in_the_layout_of_sets_and_names_of_pictures_need_no_ending() -> None:
    with engine("images = open_images('ImageSet7')\nanswer = query(images, 'Is there a red ball?')") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
        assert vqa.run([RED, GREEN], "answer = open_image('Image2')").value == ImageRef(2)
    evidence = answer.trace.calls[-1].evidence[-1]
    assert (answer.text, answer.fallback) == ("yes", False)
    assert evidence.images == (ImageRef(1), ImageRef(2)) and len(evidence.captions) == 2
    asked = evidence.prompt.rpartition("\n\n===\n")[2]
    assert asked.startswith("Context:\nLeft image: Thing ") and "\nRight image: Thing " in asked
    assert asked.endswith("Q: Is there a red ball?\nA:")
    with engine("answer = query([], 'a?')") as vqa:
        refused = vqa.ask([RED, GREEN], PAIR)
    assert refused.fallback and refused.error is not None and "at least one image" in refused.error.message


def test_a_preamble_may_list_the_primitives_itself() -> None:
    own = '"""Answer."""\nfrom utils import open_image, query\n'
    prompts = replace(load_prompt_set("gqa"), preamble=own)
    prompt = Writer(ScriptedLM(""), prompts, settings=PLAIN).request("Is it?", "image")[0].prompt
    assert isinstance(prompt, str) and prompt.startswith(f"{own}# Image 1: ")

    @primitive
    def read_text(img: Image) -> str:
        """Returns the text in the image."""
        return str(img)

    preamble = Writer(ScriptedLM(""), prompts, settings=PLAIN, extra=[read_text]).preamble("image")
    assert preamble == f'{own}"""\nread_text(img: Image) -> str: Returns the text in the image.\n"""'
    named = replace(prompts, preamble=f"{own}# read_text reads\n")
    assert Writer(ScriptedLM(""), named, settings=PLAIN, extra=[read_text]).preamble("image") == named.preamble
