"""The demo's visitors and their questions: what they share, what ends what they asked, what is kept of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cli_kit import GARDEN
from PIL import Image
from service_kit import VISITOR, StubEngine, StubService, answer, asked, last

from codevqa import CodeVQA
from codevqa.core.errors import ImageError
from codevqa.core.events import Answered, Writing
from codevqa.core.trace import DomainWarning
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion
from codevqa.demo.pictures import read_uploads, shipped_answers, shipped_questions
from codevqa.demo.service import OWN_FAULT
from codevqa.pages import LARGE
from codevqa.presets.configuration import configure


def test_a_bad_picture_is_told_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes(GARDEN.read_bytes()[:1500])
    (tmp_path / "heavy.png").write_bytes(GARDEN.read_bytes())
    messages = {"cut.png": "is damaged", "heavy.png": "is too large a file", "gone.png": "is no longer here"}
    for name, words in messages.items():
        with pytest.raises(ImageError, match=f"^{name} {words}") as caught:
            read_uploads([str(tmp_path / name)], DemoLimits(upload_bytes=2000), tmp_path, tmp_path / "index")
        assert str(tmp_path) not in str(caught.value)


def test_pictures_are_bounded_each_and_together(tmp_path: Path) -> None:
    Image.new("RGB", (100, 90)).save(tmp_path / "wide.png")
    place, index = str(tmp_path / "wide.png"), tmp_path / "index"
    with pytest.raises(ImageError, match=r"^wide.png is too large \(100x90\)"):
        read_uploads([place], DemoLimits(pixels=8999), tmp_path, index)
    many = [place] * (LARGE + 1)
    with pytest.raises(ImageError, match="too large together"):
        read_uploads(many, DemoLimits(question_bytes=LARGE * Path(place).stat().st_size), tmp_path, index)


def test_pictures_are_counted_and_only_uploads_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "uploads"
    inside.mkdir()
    good, link = inside / "garden.png", inside / "link.png"
    good.write_bytes(GARDEN.read_bytes())
    link.symlink_to(GARDEN)
    assert read_uploads([str(good)], DemoLimits(), inside, tmp_path / "index")[0].name == "garden.png"
    for paths in ([], [str(good)] * 3):
        with pytest.raises(ImageError):
            read_uploads(paths, DemoLimits(pictures=2), inside, tmp_path / "index")
    for path in (GARDEN, link, inside / ".." / "secret.png", Path("/etc/passwd")):
        with pytest.raises(ImageError, match="not uploaded"):
            read_uploads([str(path)], DemoLimits(), inside, tmp_path / "index")


def test_the_answer_that_ships_is_the_one_that_its_models_give(mini: CodeVQA) -> None:
    paths, question = shipped_questions()[0]
    for shipped, method in zip(shipped_answers(), ("codevqa", "pnpvqa"), strict=True):
        now = mini.ask(paths, question, method=method)  # type: ignore[arg-type]
        assert (shipped.text, shipped.program and shipped.program.source) == (
            now.text,
            now.program and now.program.source,
        )
        assert [call.value for call in shipped.trace.calls] == [call.value for call in now.trace.calls]
        assert shipped.models == now.models


def test_a_question_is_answered_in_each_way_that_its_models_can(tmp_path: Path) -> None:
    engine = StubEngine(Answered(answer()))
    service = StubService(tmp_path, engine)
    service.configuration = configure("mini-vlm")
    live = asyncio.run(last(service.serve(asked(tmp_path, compared=True), VISITOR)))
    assert [options.get("method") for options in engine.options] == ["codevqa", "direct", "pnpvqa"]
    assert live.view().baseline.count("demo-big") == 2


def test_what_visitors_take_away_names_no_option_of_the_command_line(tmp_path: Path) -> None:
    warned = answer("blue", warnings=(DomainWarning("words", "Unknown words. Give --preset api."),))
    service = StubService(tmp_path, StubEngine(Answered(warned)))
    live = asyncio.run(last(service.serve(asked(tmp_path), VISITOR)))
    page = Path(asyncio.run(service.page(live, VISITOR)) or "").read_text("utf-8")
    assert "Unknown words." in page and "--preset" not in page


def test_visitors_share_nothing_and_who_was_away_longest_is_forgotten(tmp_path: Path) -> None:
    engine = StubEngine(Answered(answer()))
    service = StubService(tmp_path, engine, visitors=2)
    for session in ("one", "other", "one", "third", "one", "other"):
        asyncio.run(last(service.serve(asked(tmp_path), session)))
    first, other, again, _, still, anew = (options["memory"] for options in engine.options)
    assert first is again is still and first is not other and other is not anew


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["Stop", "leaving the page", "time"])
def test_what_runs_for_a_visitor_ends_with(way: str, tmp_path: Path) -> None:
    engine = StubEngine(Writing("img ="))
    service = StubService(tmp_path, engine, seconds=0.3 if way == "time" else 100)

    async def run() -> LiveQuestion | None:
        asking = asyncio.create_task(last(service.serve(asked(tmp_path, compared=True), VISITOR)))
        while not engine.watches:
            await asyncio.sleep(0.01)
        if way == "Stop":  # Gradio cancels what it runs
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            return None
        if way == "leaving the page":
            service.forget(VISITOR)
        return await asking

    live = asyncio.run(run())
    assert len(engine.watches) == 2 and all(watch.done for watch in engine.watches)
    if live is not None:
        view = live.view()
        assert "Stopped" in view.status and "stopped" in view.answer and "stopped" in view.baseline


@pytest.mark.parametrize("fields", [{"pictures": []}, {"program": "x" * 4001}, {"shots": 13}])
def test_what_cannot_be_asked_is_said_and_not_asked(tmp_path: Path, fields: dict[str, Any]) -> None:
    engine = StubEngine(Answered(answer()))
    service = StubService(tmp_path, engine)
    live = asyncio.run(last(service.serve(asked(tmp_path, **fields), VISITOR)))
    assert live.error is not None and live.error.message != OWN_FAULT and engine.watches == []
    assert 'role="alert"' in live.view().message and "data-busy" not in live.view().status


def test_a_fault_of_the_demo_itself_is_logged_and_shown_without_its_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(StubService):
        def engine(self) -> Any:
            raise RuntimeError("a secret detail")

    live = asyncio.run(last(Faulty(tmp_path, StubEngine()).serve(asked(tmp_path), VISITOR)))
    assert "page itself failed" in live.view().message and "secret" not in live.view().message
    assert "a secret detail" in caplog.text


def test_the_page_of_the_last_answer_is_kept_without_where_models_lie(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    service = StubService(tmp_path, StubEngine(Answered(answer("blue", models=models))))
    live = asyncio.run(last(service.serve(asked(tmp_path), VISITOR)))
    first, second = (asyncio.run(service.page(live, VISITOR)) for _ in range(2))
    assert first and second == first, "one page a visitor"
    assert Path(first).name.startswith("garden-") and len(list(Path(first).parent.iterdir())) == 1
    assert Path(second).is_relative_to(tmp_path) and len(Path(second).parent.name) == 32, "nobody guesses where it lies"
    text = Path(second).read_text("utf-8")
    assert "blue" in text and "garden.png" in text and "somebody" not in text
    service.forget(VISITOR)
    assert not Path(second).exists()
