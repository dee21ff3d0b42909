"""Answers about many pictures: corrections, the gallery of the demo, and pages that stay small."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest
from engine_kit import BLUE, RED, engine
from pages_kit import PICTURES, Read, peaked
from PIL import Image as PILImage
from service_kit import VISITOR, StubService, last

from codevqa import Answer, CodeVQA
from codevqa.collections.collection import Collection, StoredPicture
from codevqa.core.errors import ImageError, InputError
from codevqa.core.images import load_picture
from codevqa.core.trace import Call, Evidence, ImageRef, Program, Trace
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion
from codevqa.demo.pictures import read_uploads
from codevqa.demo.service import DemoRequest
from codevqa.pages import answer_fragment, calls_html, evidence_html, gallery_html, trace_page

ASKED = "Is there a purple cup?"
LOOP = f'answer = sum(query(img, "{ASKED}") == "yes" for img in images)'


def looked(number: int, value: str, kind: str = "itm", score: float = 9.0) -> Call:
    """A call of a loop, with as much evidence as a reading leaves."""
    ref = ImageRef(number)
    captions = (("a cat on a mat",) * 7,)
    maps = (peaked(24, 24, 5, 20),)
    evidence = Evidence(kind, (ref,), ASKED, captions, maps, ((tuple(range(20)),) * 7,), (score,), prompt="p" * 1500)
    return Call(number, "query", {"img": ref, "question": ASKED}, value, 0.01, 1, (evidence,))


def counted(*calls: Call) -> Answer:
    return Answer("How many?", "7", Program(LOOP), Trace(calls), 7, seconds=1.0)


# -- corrections -------------------------------------------------------------------------------------------------------


def test_what_a_person_said_comes_before_any_model_and_stands_in_the_trace() -> None:
    corrections = {(load_picture(RED).key, ASKED): False}
    with engine() as vqa:
        answer = vqa.run([RED, BLUE], LOOP, corrections=corrections)
        with pytest.raises(InputError, match="corrections"):
            vqa.run(RED, LOOP, corrections={ASKED: True})  # type: ignore[dict-item]
    assert [call.value for call in answer.trace.calls] == ["no", "yes"]
    first, second = (call.evidence for call in answer.trace.calls)
    assert first == (Evidence("corrected", (ImageRef(1),), ASKED, scores=(0.0,)),)
    assert [evidence.kind for evidence in second] == ["pnpvqa"]
    assert "What a person said" in evidence_html(first[0], PICTURES)


# -- pages -------------------------------------------------------------------------------------------------------------


def test_a_page_of_a_thousand_pictures_is_small_and_decodes_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        PILImage.new("RGB", (64, 48), (number % 256, number // 256, 9)).save(tmp_path / f"{number:04}.png")
    pictures = Collection(tmp_path, index=tmp_path / "index").open()
    decoded: list[str] = []
    pixels: Any = vars(StoredPicture)["pixels"]

    def noting(picture: StoredPicture) -> PILImage.Image:
        decoded.append(picture.key)
        return cast(PILImage.Image, pixels.fget(picture))

    monkeypatch.setattr(StoredPicture, "pixels", property(noting))
    answer = counted(*(looked(number, "no" if number % 25 else "yes") for number in range(1, 1001)))
    trace_page(counted(), pictures[:1])  # templates are compiled once
    for draw in (trace_page, answer_fragment):
        started = time.process_time()
        html = draw(answer, pictures)
        assert len(html) < 5e6 and time.process_time() - started < 2
        page = Read(html)
        assert len(page.all("img")) == 60 and "and 940 more pictures" in page.text
        block = page.element(cls="cv-block")
        assert "1,000 calls of query: 960 no, 40 yes" in block.text and ASKED in block.text
    assert len(set(decoded)) == 60
    page = Read(trace_page(answer, pictures))
    assert len(Answer.from_json(page.element("script", id="cv-answer-data").text).trace.calls) == 1000
    links = [element.attributes["href"][1:] for element in page.all("a", cls="cv-value")]
    assert links and all(page.element(id=link) for link in links)


def test_a_gallery_shows_first_what_counts_and_marks_what_to_check() -> None:
    pictures = [load_picture(PILImage.new("RGB", (8, 8), (shade, 0, 0))) for shade in range(12)]
    sure = [looked(number, "no", score=-9.0) for number in range(1, 10)]
    doubtful, counts = looked(10, "no", "pnpvqa"), looked(11, "yes")
    corrected = looked(12, "no", "corrected", 0.0)
    page = Read(gallery_html(counted(*sure, doubtful, counts, corrected), pictures))
    buttons = page.all("button")
    assert {button.attributes["data-picture"] for button in buttons[:3]} == {"10", "11", "12"} and len(buttons) == 12
    labels = {button.attributes["data-picture"]: button.attributes["aria-label"] for button in buttons}
    assert labels["11"] == "image 11, counts, over 99 %" and labels["12"] == "image 12, does not count, corrected"
    assert labels["10"].startswith("image 10, to check, ") and "does not count" in labels["1"]
    assert "The answer rests on 1 of 12 pictures." in page.text


def test_evidence_about_many_pictures_shows_the_best_and_counts_the_rest() -> None:
    refs = tuple(map(ImageRef, range(1, 201)))
    page = Read(evidence_html(Evidence("select", refs, ASKED, scores=tuple(n / 200 for n in range(200))), ()))
    assert len(page.all(cls="cv-bar")) == 60 and "image 200" in page.element("ol").text and "and 140 more" in page.text
    assert "image 60" in Read(evidence_html(Evidence("unread", refs, ASKED), ())).text
    loop = [looked(number, "yes") for number in range(1, 25)]
    assert not Read(calls_html(loop)).all(cls="cv-block"), "a short loop shows all"


# -- the demo ----------------------------------------------------------------------------------------------------------


def drawings(folder: Path, mini_pictures: Path) -> list[str]:
    """Twelve pictures, of which the first two show a purple cup."""
    names = ["shelf-1", "shelf-2", "shelf-3", "garden", "harbor"]
    shown = [PILImage.open(mini_pictures / f"{name}.png").convert("RGB") for name in names]
    paths = []
    for number in range(12):
        shown[number % 5].rotate(90 * (number // 5)).save(folder / f"{number}.png")
        paths.append(str(folder / f"{number}.png"))
    return paths


def test_a_picture_opens_and_is_corrected_for_its_visitor_alone(tmp_path: Path, mini: CodeVQA) -> None:
    service = StubService(tmp_path, mini)  # type: ignore[arg-type]
    paths = drawings(tmp_path, Path(__file__).parent.parent / "examples" / "pictures")

    def served(asked: DemoRequest) -> LiveQuestion:
        live: LiveQuestion = asyncio.run(last(service.serve(asked, VISITOR)))
        assert live.answer is not None and live.error is None
        return live

    first = served(DemoRequest(paths, "How many?", program=LOOP, compared=True))
    assert first.answer is not None and "cv-tiles" in first.view().gallery and first.view().baseline == ""
    number = first.answer.selections[0].picked[0].image.index
    opened = asyncio.run(service.look(number, VISITOR))
    assert "from memory" in opened and ASKED in opened and 'data-said="no"' in opened
    again = served(service.correct(number, False, VISITOR))
    assert again.answer is not None and again.answer.value == first.answer.value - 1
    assert "corrected" in again.view().gallery and "What a person said" in asyncio.run(service.look(number, VISITOR))
    for session, wrong in (("another", number), (VISITOR, 0), (VISITOR, 13)):
        with pytest.raises(InputError):
            asyncio.run(service.look(wrong, session))
    fresh = served(DemoRequest(paths, "How many?", program=LOOP)), served(DemoRequest(paths[:3], "How many?"))
    assert fresh[0].corrections and not fresh[1].corrections and not fresh[1].view().gallery


def test_many_uploads_stay_in_their_files_and_keep_their_names(tmp_path: Path) -> None:
    paths = drawings(tmp_path, Path(__file__).parent.parent / "examples" / "pictures")
    pictures = read_uploads(paths, DemoLimits(), tmp_path, tmp_path / "index")
    assert all(isinstance(picture, StoredPicture) for picture in pictures)
    assert [picture.name for picture in pictures] == [f"{number}.png" for number in range(12)]
    with pytest.raises(ImageError, match="too large together"):
        read_uploads(paths, DemoLimits(question_bytes=9000), tmp_path, tmp_path / "index")
    Path(paths[5]).write_bytes(Path(paths[5]).read_bytes()[:1500])
    with pytest.raises(ImageError, match=r"^5\.png is damaged") as caught:
        read_uploads(paths, DemoLimits(), tmp_path, tmp_path / "index")
    assert str(tmp_path) not in str(caught.value)
