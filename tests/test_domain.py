"""The domain of a preset: photographs and unknown words are caught, drawings and the world's own questions are not."""

import io
import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_kit import GARDEN, ROOT, SHELF, CommandLine
from engine_kit import engine
from PIL import Image, ImageDraw, ImageFont
from test_miniworld import draw_questions

from codevqa import CodeVQA, Models, Settings
from codevqa.core.answer_words import DONT_KNOW
from codevqa.core.images import load_pictures
from codevqa.core.trace import ImageRef
from codevqa.engine.prepared_question import answer_without_models
from codevqa.engine.request import ask_request
from codevqa.mini.sampling import sample_scene
from codevqa.mini.world import draw_scene
from codevqa.models.domain import Domain
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.pages import trace_page
from codevqa.presets.assembly import domain_of
from codevqa.presets.configuration import Layer, configure

DOG = "Is there a dog?"
PHOTOGRAPHS = {"gradio": "media_assets/images/*.jp*g", "sklearn": "datasets/images/*.jpg"}
"""Packages that bring photographs, which the shipped weights never saw, and where."""


@pytest.fixture(scope="module")
def domain() -> Domain:
    domain = domain_of(configure("mini"))
    assert domain is not None
    return domain


@pytest.fixture(scope="module")
def photographs() -> list[Path]:
    paths = [
        path
        for package, pattern in PHOTOGRAPHS.items()
        if (spec := find_spec(package)) and spec.origin
        for path in sorted(Path(spec.origin).parent.glob(pattern))
    ]
    if not paths:
        pytest.skip("no installed package brings photographs")
    return paths


def sent(image: Image.Image, side: int, quality: int) -> Image.Image:
    """A picture as it comes out of a chat or a screenshot: scaled, and compressed as JPEG."""
    image = image.resize((side, max(1, side * image.height // image.width)), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def kinds(domain: Domain, question: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(warning.kind, warning.words) for warning in domain.check((), question)]


def test_photographs_and_parts_of_them_are_caught(domain: Domain, photographs: list[Path]) -> None:
    rng = random.Random(5)
    scores = []
    for path in photographs:
        whole = Image.open(path).convert("RGB")
        scores.append(domain.score(whole))
        for _ in range(12):
            width, height = (round(side * rng.uniform(0.4, 1)) for side in whole.size)
            left, top = rng.randint(0, whole.width - width), rng.randint(0, whole.height - height)
            part = whole.crop((left, top, left + width, top + height))
            scores.append(domain.score(sent(part, rng.randint(80, 900), rng.randint(50, 95))))
    assert sum(score > 0 for score in scores) >= 0.98 * len(scores)


def test_drawings_are_not_taken_for_photographs(domain: Domain) -> None:
    rng = random.Random(6)
    drawings = [draw_scene(sample_scene(rng, max_things=8, split="test")) for _ in range(200)]
    worn = [sent(drawing, rng.randint(80, 900), rng.randint(50, 95)) for drawing in drawings]
    assert sum(domain.score(image) > 0 for image in worn) <= 2
    paths = [*(ROOT / "examples" / "pictures").glob("*.png"), *(ROOT / "codevqa" / "demo" / "pictures").glob("*.png")]
    drawings += [Image.open(path).convert("RGB") for path in paths]
    drawings += [Image.new("RGB", size, "red") for size in ((1, 1), (3000, 2))]
    assert not [drawing for drawing in drawings if domain.score(drawing) > 0]


def test_no_question_of_the_world_or_of_the_examples_has_an_unknown_word(domain: Domain) -> None:
    questions = [item.question for _, item in draw_questions(400, 11, "test")]
    questions += [
        json.loads(line)["question"] for line in (ROOT / "examples" / "questions.jsonl").read_text("utf-8").splitlines()
    ]
    for name in ("examples", "reading"):
        lines = (ROOT / "prompts" / "mini" / f"{name}.jsonl").read_text("utf-8").splitlines()
        questions += [json.loads(line)["question"] for line in lines]
    assert {question: unknown for question in questions if (unknown := kinds(domain, question))} == {}


def test_unknown_words_are_named(domain: Domain) -> None:
    expected = {
        DOG: [("words", ("dog",))],
        "Is the HORSE near the beach?": [("words", ("horse", "beach"))],
        "Ist da ein Stern?": [("words", ("ist", "ein", "stern"))],
        "Is there a yelow squere?": [("spelling", ("yelow", "squere"))],
        "it'll be 12 stars, please": [],
    }
    assert {question: kinds(domain, question) for question in expected} == expected


@pytest.mark.parametrize(
    ("typed", "meant"), [("boht", "both"), ("wich", "which"), ("grean", "green"), ("teh", "the"), ("doesnt", "doesn't")]
)
def test_a_slip_of_one_letter_is_undone(domain: Domain, typed: str, meant: str) -> None:
    assert domain.respell(f"{typed} pictures") == f"{meant} pictures"


def test_everyday_words_are_not_taken_for_known_ones_spelt_wrongly(domain: Domain) -> None:
    everyday = ("weather", "range", "flows", "charts", "event", "strings", "rackets", "heaven")
    unknown = {word: kinds(domain, f"Is there a {word}?") for word in everyday}
    assert unknown == {word: [("words", (word,))] for word in everyday}
    assert kinds(domain, "how many trianlges and pictued umbrela")[0][0] == "spelling"


def other_drawings() -> list[Image.Image]:
    """A chart, a letter, a scan and a page of text."""
    font = ImageFont.load_default(18)
    drawings = [Image.new("RGB", (320, 240), color) for color in ("white", "white", "black", "white")]
    chart, letter, scan, page = map(ImageDraw.Draw, drawings)
    for place, height in enumerate((120, 60, 170, 90, 140)):
        chart.rectangle((50 + 50 * place, 210 - height, 85 + 50 * place, 210), "#1f77b4")
        chart.text((55 + 50 * place, 214), str(2020 + place), "black", ImageFont.load_default(11))
    chart.line((40, 20, 40, 210, 310, 210), "black")
    letter.text((160, 120), "R", "black", ImageFont.load_default(200), anchor="mm")
    for size, grey in ((110, "#c8c8c8"), (95, "#404040"), (40, "#707070"), (15, "#ffffff")):
        scan.ellipse((160 - size, 120 - 0.9 * size, 160 + size, 120 + 0.9 * size), grey)
    for line in range(9):
        page.text((20, 15 + 24 * line), "Some words on a sheet of paper", "black", font)
    return drawings


def test_drawings_of_another_kind_are_declined_and_those_of_the_world_are_not(mini: CodeVQA) -> None:
    others = other_drawings()
    assert [mini.ask(picture, "Is there a house?").declined for picture in others] == [True] * len(others)
    rng = random.Random(45)
    mine = [draw_scene(sample_scene(rng, max_things=8, split="test")) for _ in range(40)]
    questions: list[Any] = [(picture, "Is there a house?") for picture in [*mine, GARDEN, *SHELF]]
    answers = mini.ask_many(questions, method="pnpvqa")
    assert not [answer for answer in answers if answer.declined]
    assert mini.ask([others[0], *SHELF], "How many pictures contain a purple cup?").text == "2", "it is left out"


def test_what_a_matcher_sees_is_judged_by_the_regression_for_it_alone(mini: CodeVQA) -> None:
    matcher: Any = mini.models.matcher
    pictures = load_pictures([GARDEN, *SHELF])
    together, (alone,) = matcher.summaries(pictures), matcher.summaries(pictures[:1])
    assert together[0].shape == (3 * 192,) and np.allclose(together[0], alone, atol=1e-5)
    configuration = configure("mini", [Layer("test", {"matcher": "blip:Salesforce/blip-itm-base-coco"})])
    other = domain_of(configuration)
    assert other is not None and other.seen is None


def test_what_the_models_know_is_a_picture_too(domain: Domain) -> None:
    assert domain.picture is not None
    with Image.open(domain.picture) as picture:
        assert picture.format == "PNG"


@pytest.fixture
def asking(domain: Domain) -> Iterator[dict[bool, CodeVQA]]:
    """A strict engine and one that only warns."""

    def says(request: object) -> str:
        return 'answer = query(img, "Is it?")' if "def " in str(request) or "img" in str(request) else " yes"

    engines = {}
    for strict in (True, False):
        models = Models(ScriptedLM(says), FakeMatcher(6), FakeCaptioner(grid=6), domain=domain)
        engines[strict] = engine(says, models=models, settings=Settings(strict_domain=strict))
    yield engines
    for vqa in engines.values():
        vqa.close()


@pytest.mark.parametrize("method", ["codevqa", "pnpvqa"])
def test_a_strict_engine_asks_no_model(asking: dict[bool, CodeVQA], method: str) -> None:
    answer = asking[True].ask(GARDEN, DOG, method=method)  # type: ignore[arg-type]
    assert (answer.text, answer.declined, answer.method, answer.tokens) == ("I don't know", True, method, 0)
    assert [warning.kind for warning in answer.warnings] == ["words"]
    models: Any = (asking[True].models.reader, asking[True].writer.language_model)
    assert [len(model.requests) for model in models] == [0, 0]
    assert type(answer).from_json(answer.to_json()) == answer


@pytest.mark.parametrize(("question", "photograph"), [(DOG, False), ("Is it red?", True), ("Is it red?", False)])
def test_early_declines_are_the_same(mini: CodeVQA, photographs: list[Path], question: str, photograph: bool) -> None:
    request = ask_request(photographs[0] if photograph else GARDEN, question, {"method": "pnpvqa"})
    early = answer_without_models(configure("mini"), request)
    answer = mini.ask(photographs[0] if photograph else GARDEN, question, method="pnpvqa")
    assert (early is not None) == answer.declined
    assert early is None or replace(early, seconds=answer.seconds) == answer


def test_known_and_misspelt_words_are_answered_and_all_with_a_warning(asking: dict[bool, CodeVQA]) -> None:
    for strict, question, kinds in (
        (False, DOG, ["words"]),
        (True, "Is there a squere?", ["spelling"]),
        (True, "Is there a red house?", []),
    ):
        answer = asking[strict].ask(GARDEN, question)
        assert (answer.text, [warning.kind for warning in answer.warnings]) == ("yes", kinds)


def test_a_word_spelt_wrongly_is_asked_about_as_it_was_meant(mini: CodeVQA) -> None:
    answer = mini.ask(GARDEN, "What colour is the Housse?")
    assert (answer.text, answer.question) == ("red", "What colour is the Housse?")
    assert answer.warnings[0].message.endswith("The question was asked as: What color is the house?")
    assert mini.ask(GARDEN, "Is there a grey house?").declined, "no picture that it learnt from had one"


def test_a_program_runs_over_a_photograph_with_a_warning(asking: dict[bool, CodeVQA], photographs: list[Path]) -> None:
    answer = asking[True].run([GARDEN, photographs[0]], "answer = len(images)", question=DOG)
    assert answer.text == "2"
    (warning,) = answer.warnings
    assert (warning.kind, warning.images) == ("picture", (ImageRef(2),))
    assert warning.message.startswith(f"Image 2 ({photographs[0].name}) looks unlike what these models know")


@pytest.mark.parametrize(("drawn", "text"), [(11, "yes"), (2, "yes"), (1, "I don't know"), (0, "I don't know")])
def test_a_photograph_among_many_drawings_is_named_and_the_answer_stands(
    asking: dict[bool, CodeVQA], photographs: list[Path], drawn: int, text: str
) -> None:
    answer = asking[True].ask([*[GARDEN] * drawn, photographs[0]], "Is it red?", method="pnpvqa", form="set")
    assert answer.text == text and [warning.kind for warning in answer.warnings] == ["picture"]
    assert photographs[0].name in answer.warnings[0].message


def test_selecting_grouping_and_comparing_ask_nothing_that_the_models_cannot_know(
    mini: CodeVQA, photographs: list[Path]
) -> None:
    drawings: list[Any] = [GARDEN, *SHELF]
    assert mini.select(drawings, "a zebra").declined and mini.select([*drawings, *photographs[:4]], "a tree").declined
    (row,) = mini.group(drawings, "What color is the zebra?").rows
    assert row.answer == DONT_KNOW and len(row.pictures) == len(drawings)
    first, other = mini.compare([drawings, photographs[:3]], "How many pictures show a house?")
    assert not first.declined and other.declined
    answer = mini.ask([photographs[0], *SHELF], "How many pictures contain a purple cup?")
    assert answer.text == "2" and answer.warnings[0].message.startswith("Left out: Image 1 ")
    many = [*drawings * 3, photographs[0]]
    (selection,) = mini.select(many, "a house").selections
    assert [image.index for image in selection.unread] == [len(many)], "a few are left out"
    rows = {row.answer: row.pictures for row in mini.group(many, "Is there a house?")}
    assert [image.index for image in rows[DONT_KNOW]] == [len(many)] and len(rows) == 3


def test_an_evaluation_says_how_many_questions_lie_outside(
    codevqa: CommandLine, photographs: list[Path], tmp_path: Path
) -> None:
    asked = [(photographs[0], "Is it red?"), (GARDEN, "Is there a zebra?"), (GARDEN, "Is there a house?")]
    lines = [{"images": [str(path)], "question": question, "answer": "no"} for path, question in asked]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = codevqa("eval", tmp_path / "mine.jsonl", "--out", tmp_path / "run", "--method", "pnpvqa", "--quiet")
    assert "2 of 3 questions lie outside what the models know" in done.stdout, done.stderr


def test_the_trace_page_says_so_before_the_answer(asking: dict[bool, CodeVQA]) -> None:
    answer = asking[True].ask(GARDEN, DOG)
    page = trace_page(answer, ())
    warning, shown = page.index("These models don&#39;t know"), page.index('class="cv-answer"')
    assert warning < shown and 'data-outcome="declined"' in page and "No model was asked" in page
    assert "baseline" not in page[shown : page.index("</main>")]


def test_the_command_line_says_so_on_standard_error(codevqa: CommandLine) -> None:
    done = codevqa("ask", GARDEN, "-q", DOG, "--quiet")
    assert (done.returncode, done.stdout) == (0, "I don't know\n")
    assert done.stderr.startswith("codevqa: These models don't know 'dog'") and "drawn things only" in done.stderr


def test_the_domain_goes_with_the_models_that_look() -> None:
    blip = {"matcher": "blip:Salesforce/blip-itm-base-coco", "captioner": "blip:Salesforce/blip-image-captioning-base"}
    assert domain_of(configure("base")) is None
    assert domain_of(configure("mini", [Layer("test", blip)])) is None
    assert domain_of(configure("mini", [Layer("test", {"matcher": blip["matcher"]})])) is not None
    assert domain_of(configure("mini", [Layer("test", {"language_model": "openai:some"})])) is not None


def test_photographs_have_one_recommendation_everywhere(domain: Domain) -> None:
    advice = "For photographs: --preset api --model NAME, with a server of your own such as Ollama."
    assert domain.about.endswith(advice) and advice in (ROOT / "mini" / "training" / "domain.py").read_text("utf-8")
    for page in ("README.md", "docs/trouble.md", "docs/tour.ipynb", "docs/own-questions.md"):
        words = re.sub(r"\]\(.*?\)|[\[\n]", " ", (ROOT / page).read_text("utf-8"))
        assert re.search(r"hotograph.{0,200}\bapi\b.{0,200}server *\\?n?\"?,? *\"?of +your own", words), page
