"""What the paper's release does otherwise, and what of it is so by a setting; over fake models, in a real sandbox."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image as PILImage

from codevqa import CodeVQA, Models, QuerySettings, Settings, Writer, WriterSettings
from codevqa.core.errors import InputError, ModelError
from codevqa.core.question_kind import is_statement
from codevqa.core.trace import ImageRef
from codevqa.core.wording import Wording, put
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.primitives import Image, primitive
from codevqa.prompts import PromptSet, load

RED, GREEN, BLUE = (PILImage.new("RGB", (60, 40), color) for color in ("red", "green", "blue"))
PLAIN = WriterSettings(selection="fixed", repairs=0, fit=False, form="completion")
RELEASE = Settings(
    writer=replace(PLAIN, wording="release"), query=QuerySettings(wording="release", fit=False), answers="release"
)
TOLD = Settings(writer=PLAIN, query=QuerySettings(captions=2, patches=5))
PAIR = "Both pictures show a RED ball."


@contextmanager
def engine(program: str, settings: Settings = TOLD, *, says: str = "yes", sets: str = "nlvr2") -> Iterator[CodeVQA]:
    prompts: dict[Any, PromptSet] = {"image": load("gqa"), "set": load(sets)}
    writer = Writer(ScriptedLM(program), prompts, settings=settings.writer)
    captioner = FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    with CodeVQA(writer, Models(ScriptedLM(says), FakeMatcher(6), captioner), settings) as vqa:
        yield vqa


# -- wording ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "asked", "released"),
    [
        (
            "There is an Empty glass.",
            "Is it true that There is an Empty glass?",
            "Is it true that there is an empty glass?",
        ),
        ("Is the Glass empty?", "Is the Glass empty?", "is the glass empty?"),
        ("is the glass empty", "is the glass empty", "Is it true that is the glass empty?"),
        ("how many dogs: (all)  ", "how many dogs: (all)  ", "Is it true that how many dogs all?"),
        ("a " * 60 + "b", f"Is it true that {'a ' * 60}b?", f"Is it true that {' '.join(['a'] * 50)}?"),
        ("Two  dogs!", "Is it true that Two  dogs?", "Is it true that two  dogs?"),
    ],
)
def test_a_statement_about_a_set_becomes_a_question_where_that_is_wanted(text: str, asked: str, released: str) -> None:
    assert (put(text, "plain", "set"), put(text, "asked", "set"), put(text, "release", "set")) == (
        text,
        asked,
        released,
    )


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


def test_our_banks_ask_readers_about_statements_and_mini_s_does_not() -> None:
    wordings = {name: (load(name).wording, load(name).reading_wording) for name in ("gqa", "covr", "nlvr2", "mini")}
    assert wordings == dict.fromkeys(("gqa", "mini"), ("plain", "plain")) | dict.fromkeys(
        ("covr", "nlvr2"), ("plain", "asked")
    )
    for name in ("covr", "nlvr2"):  # as their reading examples are
        assert not [one.question for one in load(name).reading if one.form == "set" and is_statement(one.question)]
    with engine("") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR, method="pnpvqa")
    assert answer.trace.baseline[-1].prompt.endswith("\nQ: Is it true that both pictures show a red ball?\nA:")
    assert (answer.question, answer.trace.baseline[-1].text) == (PAIR, PAIR)


class Words:
    """Embeds by whether a text asks; counts what it saw."""

    name = "words"

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, sentences: Sequence[str]) -> Any:
        self.seen += sentences
        return np.array([[float("true" in one), 1.0] for one in sentences], np.float32)


def test_examples_are_the_nearest_to_the_question_as_it_is_put() -> None:
    words = Words()
    settings = WriterSettings(wording="release")
    writer = Writer(ScriptedLM("answer = query(images[0], 'Is it?')"), load("nlvr2"), words, settings)
    query = QuerySettings(wording="release")
    models = Models(ScriptedLM("yes"), FakeMatcher(6), FakeCaptioner(grid=6))
    with CodeVQA(writer, models, Settings(writer=settings, query=query)) as vqa:
        vqa.ask([RED, GREEN], PAIR)
    assert "Is it true that both pictures show a red ball?" in words.seen and PAIR not in words.seen
    assert "Is it?" not in words.seen


# -- get_pos ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wording", "text"), [(None, 'Is the "man" left of the woman'), ("release", "is the man left of the woman")]
)
def test_a_position_is_looked_for_in_the_whole_question(wording: Wording | None, text: str) -> None:
    matcher = FakeMatcher(6)
    query = QuerySettings(wording=wording)
    writer = Writer(ScriptedLM(""), {"image": load("gqa")})
    settings = Settings(query=query, position_text="question")
    with CodeVQA(writer, Models(ScriptedLM("x"), matcher, FakeCaptioner(grid=6)), settings) as vqa:
        vqa.run(RED, "answer = get_pos(img, 'man')[0]", question='Is the "man" left of the woman?')
    assert [(one.text, one.focus) for one in matcher.matches.requests] == [(text, "man")]


def test_a_position_is_the_centre_of_its_patch_or_the_corner_that_the_release_takes() -> None:
    relevance = np.zeros((24, 24), np.float32)
    relevance[12, 3] = 1
    found = {}
    places: tuple[Literal["centre", "corner"], ...] = ("centre", "corner")
    for at in places:
        models = Models(ScriptedLM("x"), FakeMatcher(24, relevance=relevance), FakeCaptioner(grid=24))
        settings = Settings(position_at=at)
        with CodeVQA(Writer(ScriptedLM(""), load("gqa")), models, settings) as vqa:
            found[at] = vqa.run(RED, "answer = get_pos(img, 'man')").value
    assert found == {"centre": (3.5, 11.5), "corner": (3.0, 12.0)}


# -- what a reader does not say, and what a program leaves -----------------------------------------------------------


def test_a_program_goes_on_where_the_reader_says_nothing() -> None:
    with engine("answer = 'no' if query(images[0], 'Is there a ball?') == '' else 'yes'", says="") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    (call,) = [one for one in answer.trace.calls if one.name == "query"]
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
        ("answer = True", "True", True),
        ("answer = None", "None", None),
        ("answer = ''", "", ""),
        ("answer = 4 / 2", "2.0", 2.0),
        ("answer = ['a', images[1]]", "['a', 1]", ["a", ImageRef(2)]),
        ("x = 1", "no", None),
    ],
)
def test_what_a_program_leaves_as_the_release_takes_it(program: str, text: str, value: object) -> None:
    with engine(program, RELEASE) as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    assert (answer.text, answer.value, answer.fallback, answer.error) == (text, value, False, None)


# -- small tolerances ------------------------------------------------------------------------------------------------


def test_names_of_pictures_need_no_ending() -> None:
    with engine("images = open_images('ImageSet7')\nanswer = len(images)") as vqa:
        assert vqa.ask([RED, GREEN], "How many images?").text == "2"
        assert vqa.run([RED, GREEN], "answer = open_image('Image2')").value == ImageRef(2)


def test_a_whole_set_is_read_in_the_layout_of_sets() -> None:
    with engine("images = open_images('ImageSet7.jpg')\nanswer = query(images, 'Is there a red ball?')") as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    evidence = answer.trace.calls[-1].evidence[-1]
    assert (answer.text, answer.fallback) == ("yes", False)
    assert evidence.images == (ImageRef(1), ImageRef(2)) and len(evidence.captions) == 2
    asked = evidence.prompt.rpartition("\n\n===\n")[2]
    assert asked.startswith("Context:\nLeft image: Thing ") and "\nRight image: Thing " in asked
    assert asked.endswith("Q: Is there a red ball?\nA:")


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("answer = query([], 'a?')", "at least one image"),
        ("x = [1]\nanswer = query(x if images else x, 'a?')", "Image"),
    ],
)
def test_what_is_no_picture_and_no_set_is_refused(program: str, says: str) -> None:
    with engine(program) as vqa:
        answer = vqa.ask([RED, GREEN], PAIR)
    assert answer.fallback and answer.error is not None and says in answer.error.message


# -- prompt sets -----------------------------------------------------------------------------------------------------


def folder(tmp_path: Path, preamble: str) -> Path:
    mine = tmp_path / "mine"
    mine.mkdir()
    for file in ("prompt.json", "examples.jsonl", "reading.jsonl"):
        (mine / file).write_text((Path(__file__).parents[1] / "prompts" / "gqa" / file).read_text())
    (mine / "preamble.txt").write_text(preamble)
    return mine


def test_a_preamble_may_list_the_primitives_itself(tmp_path: Path) -> None:
    own = '"""Answer."""\nfrom utils import open_image, query\n'
    prompts = load(folder(tmp_path, own))
    prompt = Writer(ScriptedLM(""), prompts, settings=PLAIN).request("Is it?", "image")[0].prompt
    assert isinstance(prompt, str) and prompt.startswith(f"{own}# Image 1: ")

    @primitive
    def read_text(img: Image) -> str:
        """Returns the text in the image."""
        return str(img)

    told = Writer(ScriptedLM(""), prompts, settings=PLAIN, extra=[read_text]).preamble("image")
    assert told == f'{own}"""\nread_text(img: Image) -> str: Returns the text in the image.\n"""'
    named = replace(prompts, preamble=f"{own}# read_text reads\n")
    assert Writer(ScriptedLM(""), named, settings=PLAIN, extra=[read_text]).preamble("image") == named.preamble


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Files in the release's layout, of our own making."""
    programs = {"7": {"question": "Is it true that a?", "program": "answer = query(images[0], 'a?')"}}
    (tmp_path / "covr_programs50_find.json").write_text(json.dumps(programs))
    read = [{"question_id": 7, "question": "Is it true that a?", "answer": "no", "captions": [["b"] * 9, ["c"]]}]
    (tmp_path / "covr_examples50.json").write_text(json.dumps(read))
    return tmp_path / "covr_programs50_find.json"


def test_files_of_the_release_are_a_prompt_set_as_they_are(pool: Path) -> None:
    prompts, ours = load(pool), load("covr")
    assert (prompts.name, prompts.form, prompts.shots, prompts.captions) == ("covr_programs50_find", "set", 6, 3)
    assert {prompts.examples[0].question, prompts.reading[0].question} == {"Is it true that a?"}
    assert prompts.reading[0].captions == (("b",) * 3, ("c",))
    assert (prompts.wording, prompts.reading_wording, prompts.preamble) == ("release", "release", ours.preamble)
    (pool.parent / "covr_preamble.py").write_text("query\n\n")
    (pool.parent / "covr_preamble_find.py").write_text("query, find_object\n\n")
    (pool.parent / "gqa_preamble_simple.py").write_text("get_pos\n")
    assert load(str(pool)).preamble == "query, find_object"


def test_knowledge_examples_of_the_release_come_with_its_programs(pool: Path) -> None:
    for one in list(pool.parent.glob("covr_*")):
        one.rename(one.with_name(one.name.replace("covr", "okvqa")))
    programs = {k: {"question": "Who?", "program": "answer = knowledge_query('Who?')"} for k in "78"}
    (pool.parent / "okvqa_programs50_find.json").write_text(json.dumps(programs))
    known = {"8": {"question": "Who is it?", "answer": "you"}, "7": [{"question": "Who am I?", "answer": "me"}]}
    (pool.parent / "okvqa_examples_knowledge50.json").write_text(json.dumps(known))
    prompts = load(pool.with_name("okvqa_programs50_find.json"))
    assert {one.question for one in prompts.knowledge} == {"Who is it?", "Who am I?"}
    assert [one.answer for one in prompts.knowledge_of(["7"])] == ["me"]


def test_what_the_files_of_the_release_lack_is_named(pool: Path) -> None:
    (pool.parent / "covr_examples50.json").unlink()
    with pytest.raises(InputError, match=r"covr_programs50_find\.json has no reading examples beside it"):
        load(pool)
    with pytest.raises(InputError, match=r"mine_programs\.json is of no known prompt set"):
        load(pool.rename(pool.with_name("mine_programs.json")))
