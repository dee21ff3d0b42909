"""The demo's visitors and their questions: what they share, what ends what they asked, what is kept of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from service_kit import GARDEN, ROOT, VISITOR, StubEngine, StubService, answer, asked, last

from codevqa.core.errors import CodeVQAError, ImageError, InputError, SetupError
from codevqa.core.events import Answered, Writing
from codevqa.demo.history import Histories, Past
from codevqa.demo.limits import DemoLimits
from codevqa.demo.live import LiveQuestion, PageUpdate
from codevqa.demo.pictures import read_pictures, shipped_questions
from codevqa.demo.service import DemoService
from codevqa.presets.configuration import configure

ONE, OTHER = Histories.token(None), Histories.token(None)

# -- pictures --------------------------------------------------------------------------------------------------------


def test_the_shipped_examples_have_small_pictures_and_one_is_a_set() -> None:
    shipped = shipped_questions()
    assert any(len(one.images) > 1 for one in shipped)
    for path in {path for one in shipped for path in one.images}:
        assert path.stat().st_size < 50_000
        assert path.read_bytes() == (ROOT / "examples" / "pictures" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "limits", "told"),
    [
        ("broken.png", b"not a picture", DemoLimits(), "broken.png is not a picture"),
        ("cut.png", GARDEN.read_bytes()[:3000], DemoLimits(), "cut.png is damaged"),
        ("large.png", GARDEN.read_bytes(), DemoLimits(pixels=100), "large.png is too large (256x256)"),
        ("heavy.png", GARDEN.read_bytes(), DemoLimits(upload_bytes=2000), "heavy.png is too large a file"),
        ("gone.png", None, DemoLimits(), "gone.png is no longer here"),
    ],
)
def test_a_bad_picture_is_told_by_its_name(
    tmp_path: Path, name: str, content: bytes | None, limits: DemoLimits, told: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError) as caught:
        read_pictures([str(path)], limits, tmp_path)
    assert str(caught.value).startswith(told)
    assert str(tmp_path) not in str(caught.value)


def test_pictures_are_counted_and_only_uploads_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "uploads"
    inside.mkdir()
    good, link = inside / "garden.png", inside / "link.png"
    good.write_bytes(GARDEN.read_bytes())
    link.symlink_to(GARDEN)
    assert read_pictures([str(good)], DemoLimits(), inside)[0].name == "garden.png"
    for paths in ([], [str(good)] * 3):
        with pytest.raises(ImageError):
            read_pictures(paths, DemoLimits(pictures=2), inside)
    for path in (GARDEN, link, inside / ".." / "secret.png", Path("/etc/passwd")):
        with pytest.raises(ImageError, match="not uploaded"):
            read_pictures([str(path)], DemoLimits(), inside)


# -- questions -------------------------------------------------------------------------------------------------------


def test_visitors_share_nothing_and_who_was_away_longest_is_forgotten(tmp_path: Path) -> None:
    engine = StubEngine(Answered(answer()))
    service = StubService(tmp_path, engine, visitors=2)
    for session in ("one", "other", "one", "third", "one", "other"):
        asyncio.run(service.answer(asked(tmp_path), session))
    first, other, again, _, still, anew = (options["memory"] for options in engine.options)
    assert first is again is still and first is not other and other is not anew


def test_the_question_and_the_baseline_are_asked_with_the_visitors_own_memory(tmp_path: Path) -> None:
    engine = StubEngine(Answered(answer("blue")))
    service = StubService(tmp_path, engine)
    live = asyncio.run(last(service.serve(asked(tmp_path, question="  Is\nit? ", shots=3), VISITOR)))
    assert "blue" in live.view.answer and "blue" in live.view.baseline
    memory = engine.options[0]["memory"]
    assert engine.options == [
        {"question": "Is it?", "method": "codevqa", "shots": 3, "memory": memory},
        {"question": "Is it?", "method": "pnpvqa", "memory": memory},
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("way", ["Stop", "leaving the page", "time"])
def test_what_runs_for_a_visitor_ends_with(way: str, tmp_path: Path) -> None:
    engine = StubEngine(Writing("img ="))
    service = StubService(tmp_path, engine, seconds=0.3 if way == "time" else 100)

    async def run() -> LiveQuestion | None:
        asking = asyncio.create_task(last(service.serve(asked(tmp_path), VISITOR)))
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
        assert "Stopped" in live.view.status and "stopped" in live.view.answer and "stopped" in live.view.baseline


@pytest.mark.timeout(20)
def test_a_clients_question_ends_when_its_time_is_up_or_it_leaves(tmp_path: Path) -> None:
    engine = StubEngine()
    with pytest.raises(InputError, match="more than"):
        asyncio.run(StubService(tmp_path, engine, seconds=0.2).answer(asked(tmp_path), VISITOR))
    service = StubService(tmp_path, engine)

    async def leave() -> None:
        asyncio.get_running_loop().call_later(0.2, service.forget, VISITOR)
        await service.answer(asked(tmp_path), VISITOR)

    with pytest.raises(InputError, match="Stopped"):
        asyncio.run(leave())
    assert all(watch.done for watch in engine.watches)


@pytest.mark.parametrize(
    "fields",
    [
        {"question": "  "},
        {"question": "x" * 301},
        {"pictures": []},
        {"program": " \n"},
        {"program": "x" * 4001},
        {"method": "magic"},
        {"shots": 13},
    ],
)
def test_what_cannot_be_asked_is_said_and_not_asked(tmp_path: Path, fields: dict[str, Any]) -> None:
    engine = StubEngine(Answered(answer()))
    service = StubService(tmp_path, engine)
    live = asyncio.run(last(service.serve(asked(tmp_path, **fields), VISITOR)))
    assert 'role="alert"' in live.view.message and "data-busy" not in live.view.status
    with pytest.raises(CodeVQAError):
        asyncio.run(service.answer(asked(tmp_path, **fields), VISITOR))
    assert engine.watches == []


def test_a_fault_of_the_demo_itself_is_logged_and_shown_without_its_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty(StubService):
        def engine(self) -> Any:
            raise RuntimeError("a secret detail")

    live = asyncio.run(last(Faulty(tmp_path, StubEngine()).serve(asked(tmp_path), VISITOR)))
    assert "demo itself failed" in live.view.message and "secret" not in live.view.message
    assert "a secret detail" in caplog.text


def test_models_are_loaded_once_and_a_load_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[Any] = [SetupError("no disk"), StubEngine()]

    def load(configuration: object) -> Any:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("codevqa.engine.codevqa.CodeVQA.from_configuration", load)
    service = DemoService(configure("mini"), DemoLimits(), tmp_path)
    with pytest.raises(SetupError, match="no disk"):
        service.engine()
    assert service.engine() is service.engine() and outcomes == []


# -- earlier questions -----------------------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def add(histories: Histories, token: str, text: str = "yes", view: str = "shown") -> Past:
    return histories.add(token, answer(text), (), PageUpdate(view), "<p>page</p>")


def test_a_visitor_sees_their_own_questions_again_newest_first(tmp_path: Path) -> None:
    histories = Histories(tmp_path, DemoLimits())
    first, second = add(histories, ONE, "1", "<p>1</p>"), add(histories, ONE, "2", "<p>2</p>")
    assert [past.answer for past in histories.of(ONE)] == ["2", "1"]
    assert histories.find(ONE, first.id) == first and second.view() == PageUpdate("<p>2</p>")
    assert Path(second.page).read_text("utf-8") == "<p>page</p>"
    assert len(second.folder.name) == 32, "nobody guesses where it lies"


def test_nobody_reaches_what_others_asked(tmp_path: Path) -> None:
    histories = Histories(tmp_path, DemoLimits())
    past = add(histories, ONE)
    for token in (OTHER, "", ONE[:-1], ONE + "x"):
        assert histories.of(token) == [] and histories.find(token, past.id) is None
        histories.forget(token)
    assert histories.of(ONE) == [past]
    histories.forget(ONE)
    assert histories.of(ONE) == [] and not past.folder.exists()


@pytest.mark.parametrize("given", ["", None, 7, "a", "../" * 15, "x" * 44, ["x" * 43], "é" * 43])
def test_a_word_that_is_none_of_ours_is_replaced_by_one_that_nobody_guesses(given: object) -> None:
    made = {Histories.token(given) for _ in range(3)}
    assert len(made) == 3 and all(len(one) == 43 for one in made)
    assert all(Histories.token(one) == one for one in made), "and is known again"


def test_earlier_questions_are_bounded_in_number_size_and_time_and_so_are_their_files(tmp_path: Path) -> None:
    clock = Clock()
    histories = Histories(tmp_path, DemoLimits(history=2, history_bytes=3000, keep_seconds=60), clock)
    kept = [add(histories, ONE, str(number)) for number in range(3)]
    assert [past.answer for past in histories.of(ONE)] == ["2", "1"]
    assert [past.folder.exists() for past in kept] == [False, True, True]
    add(histories, OTHER, view="x" * 2800)
    assert [past.folder.exists() for past in kept] == [False] * 3, "the oldest of all make room"
    assert len(histories.of(OTHER)) == 1
    clock.now += 61
    assert histories.of(OTHER) == [] and list((tmp_path / "pages").iterdir()) == []


def test_an_answer_is_kept_without_where_models_lie_and_a_full_disk_costs_it_nothing(tmp_path: Path) -> None:
    models = {"writer": "/home/somebody/models/lm", "reader": "gpt"}
    service = StubService(tmp_path, StubEngine(Answered(answer("blue", models=models))))
    assert asyncio.run(service.answer(asked(tmp_path), VISITOR)).models == {"writer": "lm", "reader": "gpt"}
    live = asyncio.run(last(service.serve(asked(tmp_path), VISITOR)))
    (tmp_path / "pages").write_text("where the folder should be")
    assert asyncio.run(service.keep(asked(tmp_path), live, ONE)) is None
    (tmp_path / "pages").unlink()
    past = asyncio.run(service.keep(asked(tmp_path), live, ONE))
    assert past is not None and Path(past.page).is_relative_to(tmp_path)
    text = Path(past.page).read_text("utf-8")
    assert "blue" in text and "garden.png" in text and "somebody" not in text
