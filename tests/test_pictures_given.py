"""Pictures as users give them: shared between questions and threads, refilled, too many, in the wrong place."""

import asyncio
import io
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_kit import RED, engine
from PIL import Image as PILImage

from codevqa import Answer, CodeVQA, QuerySettings
from codevqa.core.errors import ImageError, InputError
from codevqa.core.events import Failed
from codevqa.core.images import ImageSource, load_picture
from codevqa.models.base import CaptionRequest, GenerationRequest
from codevqa.models.fakes import FakeCaptioner

QUERY = "answer = query(img, 'Which shade?')"
GREY = PILImage.new("RGB", (60, 40), (7, 7, 7))


@pytest.fixture(scope="module")
def vqa() -> Iterator[CodeVQA]:
    """An engine that answers with the first and the last shade of a picture, and a hash of all of it."""

    def caption(request: CaptionRequest) -> str:
        return f"shade {told(request.picture)}"

    def read(request: GenerationRequest) -> str:
        shown: list[str] = re.findall(r"Shade (\d+ \d+ \w+)", str(request.prompt))
        return f" {shown[-1]}"

    with engine(
        read=read, captioner=FakeCaptioner(caption, grid=6), query=QuerySettings(captions=1, patches=5)
    ) as made:
        yield made


@pytest.fixture(scope="module")
def photo() -> PILImage.Image:
    shades = np.linspace(0, 255, 600 * 400).reshape(400, 600).astype(np.uint8)
    return PILImage.fromarray(shades).convert("RGB")


@pytest.fixture(scope="module", params=["JPEG", "PNG", "TIFF"])
def file(request: pytest.FixtureRequest, photo: PILImage.Image) -> bytes:
    buffer = io.BytesIO()
    photo.save(buffer, request.param)
    return buffer.getvalue()


def told(source: ImageSource) -> str:
    picture = load_picture(source)
    first, last = np.asarray(picture.pixels)[[0, -1], [0, -1], 0]
    return f"{first} {last} {picture.key[:8]}"


def texts(answers: list[Answer]) -> list[str]:
    return [answer.text for answer in answers]


def test_one_opened_picture_serves_many_questions_and_threads(vqa: CodeVQA, file: bytes) -> None:
    opened, found, ready = PILImage.open(io.BytesIO(file)), list[str](), threading.Barrier(4)
    answers = vqa.ask_many([(opened, f"Which shade, {number}?") for number in range(8)], method="pnpvqa")
    assert texts(answers) == [told(file)] * 8
    opened = PILImage.open(io.BytesIO(file))

    def ask(number: int) -> None:
        ready.wait()
        found.append(vqa.ask(opened, f"Which shade, {number}?", method="pnpvqa").text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [told(file)] * 4


def test_an_opened_picture_may_be_closed_once_it_is_given(vqa: CodeVQA, photo: PILImage.Image, tmp_path: Path) -> None:
    photo.save(tmp_path / "photo.jpg")
    with PILImage.open(tmp_path / "photo.jpg") as opened:
        watch = vqa.watch(opened, "Which shade?", method="pnpvqa")
    list(watch)
    assert watch.answer is not None and watch.answer.text == told(tmp_path / "photo.jpg")
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

    wanted = [told(np.full(shape, number, np.uint8)) for number in range(10)]
    found = asyncio.run(collect())
    assert [found[place] for place in range(10)] == wanted
    assert texts(vqa.ask_many(refilled(), method="pnpvqa")) == wanted


@pytest.mark.parametrize("program", [None, QUERY])
@pytest.mark.parametrize("given", [GREY, np.full((40, 60, 3), 7, np.uint8)], ids=["PIL", "array"])
def test_a_picture_may_change_once_it_is_given(vqa: CodeVQA, given: Any, program: str | None, tmp_path: Path) -> None:
    def spoil(image: Any) -> None:
        image.paste("white", (0, 0, 60, 40)) if isinstance(image, PILImage.Image) else image.fill(255)

    async def main() -> Answer:
        image = given.copy()
        work = vqa.run_async(image, program) if program else vqa.ask_async(image, "Which shade?", method="pnpvqa")
        spoil(image)
        return await work

    assert asyncio.run(main()).text == told(GREY)
    image = given.copy()
    watch = vqa.watch_run(image, program) if program else vqa.watch(image, "Which shade?", method="pnpvqa")
    spoil(image)
    list(watch)
    answer = watch.answer
    assert answer is not None and answer.text == told(GREY)
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
