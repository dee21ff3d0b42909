"""What callers give: pictures that are shared, refilled or in the wrong place, and many questions at once."""

import asyncio
import io
import itertools
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_kit import NARROW, RED, Gate, engine, last_of
from huggingface_hub.utils.tqdm import enable_progress_bars
from PIL import Image as PILImage

from codevqa import Answer, CodeVQA, Collection, Program, QuerySettings
from codevqa.core.errors import ImageError, InputError
from codevqa.core.events import Failed
from codevqa.core.images import ImageSource, load_picture
from codevqa.models.fakes import FakeCaptioner
from codevqa.models.protocols import CaptionRequest, GenerationRequest

QUERY = "answer = query(img, 'Which shade?')"
GREY = PILImage.new("RGB", (60, 40), (7, 7, 7))


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    """An engine that answers with the first and the last shade of a picture, and a hash of all of it."""

    def caption(request: CaptionRequest) -> str:
        return f"shade {describe_shades(request.picture)}"

    def read(request: GenerationRequest) -> str:
        shown: list[str] = re.findall(r"Shade (\d+ \d+ \w+)", str(request.prompt))
        return f" {shown[-1]}"

    with engine(read=read, captioner=FakeCaptioner(caption, grid=6), query=QuerySettings(captions=1, patches=5)) as vqa:
        yield vqa


@pytest.fixture(scope="module")
def photo() -> PILImage.Image:
    shades = np.linspace(0, 255, 600 * 400).reshape(400, 600).astype(np.uint8)
    return PILImage.fromarray(shades).convert("RGB")


@pytest.fixture(scope="module", params=["JPEG", "PNG", "TIFF"])
def file(request: pytest.FixtureRequest, photo: PILImage.Image) -> bytes:
    buffer = io.BytesIO()
    photo.save(buffer, request.param)
    return buffer.getvalue()


def describe_shades(source: ImageSource) -> str:
    picture = load_picture(source)
    first, last = np.asarray(picture.pixels)[[0, -1], [0, -1], 0]
    return f"{first} {last} {picture.key[:8]}"


def texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def test_one_opened_picture_serves_many_questions_and_threads(vqa: CodeVQA, file: bytes) -> None:
    opened, shades, ready = PILImage.open(io.BytesIO(file)), list[str](), threading.Barrier(4)
    answers = vqa.ask_many([(opened, f"Which shade, {number}?") for number in range(8)], method="pnpvqa")
    assert texts(answers) == [describe_shades(file)] * 8
    opened = PILImage.open(io.BytesIO(file))

    def ask(number: int) -> None:
        ready.wait()
        shades.append(vqa.ask(opened, f"Which shade, {number}?", method="pnpvqa").text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert shades == [describe_shades(file)] * 4


def test_an_opened_picture_may_be_closed_once_it_is_given(vqa: CodeVQA, photo: PILImage.Image, tmp_path: Path) -> None:
    photo.save(tmp_path / "photo.jpg")
    with PILImage.open(tmp_path / "photo.jpg") as opened:
        watch = vqa.watch(opened, "Which shade?", method="pnpvqa")
    list(watch)
    assert watch.answer is not None and watch.answer.text == describe_shades(tmp_path / "photo.jpg")
    assert "photo.jpg" in watch.answer._repr_html_()


@pytest.mark.parametrize("shape", [(40, 60, 3), (40, 60)])
def test_each_answer_is_about_the_frame_that_its_question_was_given(vqa: CodeVQA, shape: tuple[int, ...]) -> None:
    array = np.zeros(shape, np.uint8)

    def refilled() -> Iterator[tuple[Any, str]]:
        for number in range(10):
            array[:] = number
            yield array, "Which shade?"

    async def collect() -> dict[int, str]:
        return {place: answer.text async for place, answer in vqa.ask_stream_async(refilled(), method="pnpvqa")}

    wanted = [describe_shades(np.full(shape, number, np.uint8)) for number in range(10)]
    shades = asyncio.run(collect())
    assert [shades[place] for place in range(10)] == wanted
    assert texts(vqa.ask_many(refilled(), method="pnpvqa")) == wanted


@pytest.mark.parametrize("program", [None, QUERY])
@pytest.mark.parametrize("original", [GREY, np.full((40, 60, 3), 7, np.uint8)], ids=["PIL", "array"])
def test_a_picture_may_change_once_it_is_given(
    vqa: CodeVQA, original: Any, program: str | None, tmp_path: Path
) -> None:
    def spoil(image: Any) -> None:
        image.paste("white", (0, 0, 60, 40)) if isinstance(image, PILImage.Image) else image.fill(255)

    async def main() -> Answer:
        image = original.copy()
        work = vqa.run_async(image, program) if program else vqa.ask_async(image, "Which shade?", method="pnpvqa")
        spoil(image)
        return await work

    assert asyncio.run(main()).text == describe_shades(GREY)
    image = original.copy()
    watch = vqa.watch_run(image, program) if program else vqa.watch(image, "Which shade?", method="pnpvqa")
    spoil(image)
    list(watch)
    answer = watch.answer
    assert answer is not None and answer.text == describe_shades(GREY)
    answer.save_html(tmp_path / "page.html")
    answer.save_html(tmp_path / "wanted.html", GREY)
    assert (tmp_path / "page.html").read_text() == (tmp_path / "wanted.html").read_text()


def test_what_cannot_be_a_picture_is_one_line_in_every_way_of_asking(vqa: CodeVQA) -> None:
    images: Any = np.broadcast_to(np.uint8(0), (10**5, 10**5))
    words = r"^The given array is too large \(100000x100000\)"
    with pytest.raises(ImageError, match=words):
        vqa.ask(images, "Is it?")
    failed = list(vqa.watch(images, "Is it?"))[-1]
    assert isinstance(failed, Failed) and re.search(words, failed.error.message)
    (answer,) = vqa.ask_many([(images, "Is it?")])
    assert answer.error is not None and re.search(words, answer.error.message)


def test_a_program_in_the_place_of_the_pictures_is_refused(vqa: CodeVQA) -> None:
    with pytest.raises(ImageError, match=r"^No picture at answer = img\.width\. Check the path"):
        vqa.run("answer = img.width", "red.png")
    with pytest.raises(InputError, match="A program is a text or a Program, not Image"):
        vqa.run("answer = img.width", RED)  # type: ignore[arg-type]


def test_pictures_and_text_that_changed_places_are_told_so(
    vqa: CodeVQA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    RED.save("red.png")
    (tmp_path / "photos").mkdir()
    RED.save("photos/red.png")
    asks: list[Callable[[Any, Any], Answer]] = [
        vqa.ask,
        vqa.run,
        vqa.select,
        lambda words, pictures: vqa.group(words, pictures).answer,
        lambda words, pictures: vqa.compare([words, words], pictures)[0],
        lambda words, pictures: vqa.ask_many([(words, pictures)], errors="raise")[0],
        lambda words, pictures: asyncio.run(vqa.ask_async(words, pictures)),
    ]
    for ask, name in itertools.product(asks, ("red.png", "photos")):
        with pytest.raises(ImageError, match=rf"^No picture at Is it\?\. Pictures come first: give {name} before"):
            ask("Is it?", name)
    with pytest.raises(ImageError, match=r"Pictures come first: give red\.png before"):
        vqa.run(Program(QUERY), "red.png")  # type: ignore[arg-type]
    swapped: list[Any] = [RED, np.asarray(RED), [RED], Path("red.png"), Collection("photos")]
    for ask, pictures in itertools.product(asks, swapped):
        with pytest.raises(InputError, match=r"Pictures come first|pairs \(images, text\)"):
            ask("Is it?", pictures)
    for pictures in swapped:
        with pytest.raises(InputError, match="Pictures come first, then questions by name"):
            vqa.table({"a": "Is it?"}, pictures)  # type: ignore[arg-type]


def test_a_question_may_be_the_name_of_a_file(vqa: CodeVQA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    RED.save("red.png")
    assert vqa.ask("red.png", "red.png", method="pnpvqa").text
    with pytest.raises(ImageError, match=r"not a picture this can read\. Use PNG"):
        Path("dog").write_text("")
        vqa.ask("dog", "dog")


def test_the_name_of_a_folder_or_zip_file_leads_to_collections(vqa: CodeVQA, tmp_path: Path) -> None:
    RED.save(tmp_path / "red.png")
    archive = shutil.make_archive(str(tmp_path.parent / "red"), "zip", tmp_path)
    asks: list[Callable[[str, str], object]] = [vqa.ask, vqa.select, vqa.group]
    for name, ask in itertools.product((f"{tmp_path}/", archive), asks):
        with pytest.raises(ImageError, match=r"For a folder or zip file, in Python: codevqa\.Collection\("):
            ask(name, "Is it?")
    with pytest.raises(ImageError, match=r"codevqa\.Collection\("):
        vqa.table(str(tmp_path), {"a": "Is it?"})
    with pytest.raises(ImageError, match=r"codevqa\.Collection\("):
        vqa.index(str(tmp_path))  # type: ignore[arg-type]


BAD = Path("none.png")


@pytest.fixture(scope="module")
def plain() -> Iterator[CodeVQA]:
    with engine(settings=NARROW) as vqa:
        yield vqa


@pytest.mark.parametrize("bad", [(BAD, "Is it?"), (RED, ""), ("Is it?",), 7])
def test_one_policy_says_what_becomes_of_whatever_cannot_be_answered(plain: CodeVQA, bad: Any) -> None:
    asked = [(RED, "Is it red?"), bad]
    first, second = plain.ask_many(asked)
    assert (first.text, second.text) == ("yes", "") and second.error is not None
    with pytest.raises(InputError):
        plain.ask_many(asked, errors="raise")
    with pytest.raises(InputError):
        asyncio.run(last_of(plain.ask_stream_async(asked, errors="raise")))


def test_progress_is_told_and_shown(plain: CodeVQA, capfd: pytest.CaptureFixture[str]) -> None:
    counts: list[tuple[int, int | None]] = []
    plain.ask_many([(RED, "a?"), (BAD, "b?")], progress=lambda done, total: counts.append((done, total)))
    plain.ask_many(iter([(RED, "a?")]), progress=lambda done, total: counts.append((done, total)))
    assert counts == [(1, 2), (2, 2), (1, None)]
    assert capfd.readouterr().err == ""
    enable_progress_bars()  # commands that were quiet turned them off for the process
    plain.ask_many([(RED, "a?"), (RED, "b?")], progress=True)
    assert "2/2" in capfd.readouterr().err


def test_answers_come_before_the_last_question_is_answered() -> None:
    gate = Gate()
    with engine(read=gate, workers=2) as gated:
        asked: Iterator[Any] = iter([(BAD, "Bad?"), (RED, "Held?")])
        answers = gated.ask_stream(asked, method="pnpvqa")
        place, answer = next(answers)
        assert (place, answer.error is not None) == (0, True)
        assert gate.entered.wait(20) and not gate.open.is_set()
        gate.open.set()
        assert [(place, answer.text) for place, answer in answers] == [(1, "yes")]


def test_questions_without_end_are_taken_as_there_is_room(plain: CodeVQA) -> None:
    taken = itertools.count()
    endless = ((RED, f"Is it {next(taken)}?") for _ in itertools.repeat(None))
    answers = plain.ask_stream(endless)
    texts = [next(answers)[1].text for _ in range(5)]
    answers.close()
    assert texts == ["yes"] * 5
    assert next(taken) <= 5 + 2 * NARROW.workers

    async def main() -> list[str]:
        stream = plain.ask_stream_async((RED, f"Is it {next(taken)}?") for _ in itertools.repeat(None))
        texts = [(await anext(stream))[1].text for _ in range(5)]
        await stream.aclose()
        return texts

    assert asyncio.run(main()) == ["yes"] * 5


def test_leaving_a_stream_ends_what_is_under_way() -> None:
    gate = Gate()
    with engine(read=gate, workers=2) as gated:
        held = [(RED, f"Held {number}?") for number in range(20)]
        answers = gated.ask_stream([(BAD, "Bad?"), *held], method="pnpvqa")
        next(answers)
        answers.close()
        gate.open.set()
        assert texts(gated.ask_many([(RED, "Is it red?")], method="pnpvqa")) == ["yes"]
    assert not {"Held 2?", "Held 3?"} & set(gate.questions), "they wait for the first two, and nobody for them"


def test_one_text_is_no_list_of_sets(mini: CodeVQA) -> None:
    with pytest.raises(InputError, match="Give a list of two or more"):
        mini.compare("photos/", "How many houses are there?")
