"""Tables of answers: each picture is asked once, what is finished is kept, and files are whole or as they were."""

import csv
import json
import os
import re
import resource
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from engine_kit import engine, forked
from PIL import Image
from tiny import write_blip

from codevqa import Budget, CodeVQA, Collection, Column, Program, Table
from codevqa.collections import disk_memory
from codevqa.core.errors import InputError, ModelError, ServerError, SetupError
from codevqa.core.labels import Truth, estimate_shares, pick_for_labels, right_of, with_truths
from codevqa.core.selection import READ
from codevqa.core.table import MOST_COLUMNS, RESERVED, Cell, Row, Value
from codevqa.engine.tables import Spent
from codevqa.models.fakes import FakeCaptioner, ScriptedLM
from codevqa.models.protocols import GenerationRequest
from codevqa.presets.configuration import Configuration, Layer, configure
from codevqa.presets.identity import identity_of
from codevqa.prompts import load_prompt_set

DOGS, DAY, SKY = "How many dogs are there?", "Is it day?", "What is the sky? =blue,grey"


def paint_shades(folder: Path, *shades: int) -> Path:
    """Writes a picture of each shade, in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, shade in enumerate(shades):
        Image.new("RGB", (24, 18), (shade, 90, 200)).save(folder / f"{place:03}.png")
    return folder


class Shades:
    """Models behind an engine: the shade is the number of dogs, day is when it is even, and the sky at 3 is green.

    ``wrote`` and ``read`` hold the questions about which programs were written, and those that were read of a shade.
    """

    def __init__(self) -> None:
        self.wrote: list[str] = []
        self.read: list[tuple[str, int]] = []
        self.fails: dict[int, Exception] = {}
        """What reading of a shade raises."""
        self._lock = Lock()

    def open(self, configuration: Configuration | None = None, *, kept: bool = True, **numbers: Any) -> CodeVQA:
        """Returns an engine, made from a configuration unless its answers cannot be ``kept``."""
        captioner = FakeCaptioner(lambda request: f"shade {_red(request.picture.pixels)}", grid=6)
        vqa = engine(ScriptedLM(self._write, name="writer"), self._tell, captioner=captioner, **numbers)
        vqa.configuration = (configuration or configure("mini")) if kept else None
        return vqa

    def _write(self, request: GenerationRequest) -> str:
        question = str(request.prompt).rstrip().rsplit("# Image 13: ", 1)[1]
        self.wrote.append(question)
        return f'img = open_image("Image13.jpg")\nanswer = query(img, {question!r})'

    def _tell(self, request: GenerationRequest) -> str:
        asked = str(request.prompt).rsplit("Context:", 1)[1]
        question = asked.rsplit("Q: ", 1)[1].split("\n")[0]
        (shade,) = {int(number) for number in re.findall(r"shade (\d+)", asked, re.IGNORECASE)}
        with self._lock:
            self.read.append((question, shade))
        if shade in self.fails:
            raise self.fails[shade]
        if "dogs" in question:
            return f" {shade}\n"
        if "sky" in question:
            return " green\n" if shade == 3 else " grey\n"
        return " no\n" if shade % 2 else " yes\n"


def forget_process() -> None:
    """Closes what this process holds of the memory on disk, as if it had ended."""
    for memory in list(disk_memory._memories.values()):
        memory.close()
    disk_memory._memories.clear()


def _red(pixels: Image.Image) -> int:
    pixel = pixels.getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return int(pixel[0])


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def shades() -> Shades:
    return Shades()


def values(table: Table, name: str) -> list[Value]:
    return [cell.value for cell in table.column(name)]


def ask(shades: Shades, folder: Path, questions: Mapping[str, Any], **options: Any) -> Table:
    """A table, as a process of its own asks it."""
    forget_process()
    with shades.open(workers=2) as vqa:
        return vqa.table(Collection(folder), questions, **options)


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "text", "value", "wrong"),
    [
        (DOGS, "three", 3, ""),
        (DOGS, "2.5", 2.5, ""),
        (DAY, "no", "no", ""),
        (SKY, "Grey.", "grey", ""),
        (SKY, "green", None, "'green' is none of the choices."),
        (DOGS, "I don't know", None, "I don't know"),
        (DAY, "", None, ""),
    ],
)
def test_answers_become_values_of_their_column(question: str, text: str, value: Value, wrong: str) -> None:
    read = Column.parse("c", question).read(text)
    assert read == (value, wrong) and type(read[0]) is type(value)


def test_choices_follow_the_question_and_are_told_to_the_models_once() -> None:
    column = Column.parse(" the  sky ", SKY)
    assert (column.name, column.kind, column.choices) == ("the sky", "choice", ("blue", "grey"))
    assert column.question == "What is the sky: blue or grey?"
    assert Column.parse("c", "Is it red or green? =red,green").question == "Is it red or green?"


@pytest.mark.parametrize("name", ["", "  ", "dogs_chance", "dogs_wrong", "dogs_truth", *RESERVED])
def test_a_column_cannot_have_the_name_of_another_of_the_file(name: str) -> None:
    with pytest.raises(InputError, match="A column cannot be called"):
        Column.parse(name, DOGS)


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ({}, "A table needs questions"),
        ({"dogs": " "}, "The column dogs has no question"),
        ({"dogs": 3}, "The column 'dogs' has no question"),
        ({3: DOGS}, "The column 3 has no question"),
        ({"dogs": DOGS, " Dogs": DAY}, "Two columns are called 'dogs'"),
        ({"sky": "What is the sky? =grey"}, "The choices of sky are fewer than two"),
        ({"sky": "What is the sky? =grey,GREY"}, "The choices of sky are fewer than two"),
        ({"sky": "What is the sky? =grey,,blue"}, "The choices of sky are fewer than two, or empty"),
        ({f"c{number}": DOGS for number in range(MOST_COLUMNS + 1)}, "A table of 51 questions is too wide"),
    ],
)
def test_what_is_no_question_is_told_before_any_is_asked(
    shades: Shades, tmp_path: Path, questions: Any, message: str
) -> None:
    with shades.open() as vqa, pytest.raises(InputError, match=message):
        vqa.table(Collection(paint_shades(tmp_path / "p", 1)), questions)
    assert not shades.wrote and not shades.read


# -- what is asked, and how often --------------------------------------------------------------------------------------


def test_a_row_for_each_picture_with_value_chance_and_what_is_wrong(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 2, 3)
    table = ask(shades, folder, {"dogs": DOGS, "day": DAY, "sky": SKY})
    first, other = table.rows()
    assert first == {
        "filepath": str(folder / "000.png"),
        "dogs": 2,
        "dogs_chance": READ,
        "dogs_wrong": "",
        "day": "yes",
        "day_chance": READ,
        "day_wrong": "",
        "sky": "grey",
        "sky_chance": READ,
        "sky_wrong": "",
    }
    assert (other["day"], other["dogs"]) == ("no", 3)
    assert (other["sky"], other["sky_chance"]) == (None, None) and "'green' is none" in other["sky_wrong"]
    assert table.left == 0 and "query(img, 'Is it day?')" in table.programs["day"]
    assert table.counts("day") == [("yes", 1), ("no", 1)]


def test_a_program_is_written_once_and_each_picture_asked_once(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", *range(6))
    whole = ask(shades, folder, {"dogs": DOGS, "day": DAY})
    assert sorted(shades.wrote) == [DOGS, DAY]
    assert set(shades.read) == {(question, shade) for question in (DOGS, DAY) for shade in range(6)}
    shades.wrote, shades.read = [], []
    assert ask(shades, folder, {"dogs": DOGS, "day": DAY}) == whole
    assert ask(shades, folder, {"hounds": DOGS}).rows()[4]["hounds"] == 4, "another name is the same question"
    assert not shades.wrote and not shades.read


def test_only_new_pictures_and_new_questions_are_asked(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    ask(shades, folder, {"dogs": DOGS})
    paint_shades(folder, 1, 7, 8)
    shades.wrote, shades.read = [], []
    assert values(ask(shades, folder, {"dogs": DOGS}), "dogs") == [1, 7, 8]
    assert set(shades.read) == {(DOGS, 7), (DOGS, 8)} and not shades.wrote
    shades.read = []
    ask(shades, folder, {"dogs": DOGS, "day": DAY})
    assert {question for question, _ in shades.read} == {DAY} and shades.wrote == [DAY]


def test_a_copy_of_a_picture_is_asked_once_and_has_a_row(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 4, 5)
    (folder / "more").mkdir()
    shutil.copy(folder / "000.png", folder / "more" / "copy.png")
    told: list[int] = []
    with shades.open(workers=2) as vqa:
        pictures = Collection(folder, recursive=True)
        table = vqa.table(pictures, {"dogs": DOGS}, progress=lambda spent: told.append(spent.rows))
    assert values(table, "dogs") == [4, 5, 4] and max(told) == 3
    with shades.open(workers=1) as vqa:
        vqa.table(pictures, {"day": DAY})
        assert vqa.table(pictures, {"day": DAY}).left == 0


def test_calls_of_a_copy_are_made_once(shades: Shades, tmp_path: Path) -> None:
    calls = []
    for count in (1, 3):
        folder = paint_shades(tmp_path / str(count), *[4] * count)
        with shades.open(workers=1, remember=0) as vqa:
            told: list[int] = []
            pictures = Collection(folder, index=tmp_path / f"index {count}")
            vqa.table(pictures, {"dogs": DOGS}, progress=lambda spent, told=told: told.append(spent.calls))  # type: ignore[misc]
        calls.append(told[-1])
    assert calls[0] == calls[1] > 0


@pytest.mark.parametrize("how", ["argument", "setting"])
def test_fresh_asks_all_anew(how: str, shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    ask(shades, folder, {"dogs": DOGS})
    shades.wrote, shades.read = [], []
    with shades.open(workers=2, fresh=how == "setting") as vqa:
        vqa.table(Collection(folder), {"dogs": DOGS}, fresh=how == "argument")
    assert shades.wrote == [DOGS] and set(shades.read) == {(DOGS, 1), (DOGS, 2)}


@pytest.mark.parametrize("how", ["no configuration", "a list of pictures"])
def test_nothing_is_kept_of_what_may_change_unseen(how: str, shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    for _ in range(2):
        forget_process()
        shades.wrote, shades.read = [], []
        with shades.open(kept=how != "no configuration", workers=2) as vqa:
            pictures: Any = Collection(folder) if how == "no configuration" else sorted(map(str, folder.iterdir()))
            assert values(vqa.table(pictures, {"dogs": DOGS}), "dogs") == [1, 2]
        assert shades.wrote == [DOGS] and set(shades.read) == {(DOGS, 1), (DOGS, 2)}


def test_a_program_of_the_user_is_run_and_asked_anew_when_it_changes(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    source = 'img = open_image("Image1.jpg")\nanswer = int(query(img, "How many dogs are there?")) + 10'
    assert values(ask(shades, folder, {"dogs": Program(source, DOGS)}), "dogs") == [11, 12]
    again = source.replace("10", "20")
    assert values(ask(shades, folder, {"dogs": Program(again, DOGS)}), "dogs") == [21, 22]
    shades.read = []
    assert values(ask(shades, folder, {"dogs": Program(source, DOGS)}), "dogs") == [11, 12]
    assert not shades.wrote and not shades.read


# -- what ends a table early -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget",
    [Budget(calls=1), Budget(money=1e-6, price=(1.0, 1.0)), Budget(seconds=1e-6)],
    ids=["calls", "money", "seconds"],
)
def test_a_budget_stops_and_the_rest_is_resumed(budget: Budget, shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", *range(12))
    stopped = ask(shades, folder, {"dogs": DOGS}, budget=budget)
    finished = [shade for cell in stopped.column("dogs") if isinstance(shade := cell.value, int)]
    assert stopped.left == 12 - len(finished) > 0
    assert stopped.rows()[-1]["dogs_wrong"] == "It was not reached."
    shades.wrote, shades.read = [], []
    whole = ask(shades, folder, {"dogs": DOGS})
    assert values(whole, "dogs") == list(range(12)) and whole.left == 0
    assert not shades.wrote and {shade for _, shade in shades.read} == set(range(12)) - set(finished)


def test_a_budget_that_is_wide_enough_stops_nothing(shades: Shades, tmp_path: Path) -> None:
    budget = Budget(seconds=600, calls=10**6, money=1e3, price=(1.0, 1.0))
    assert ask(shades, paint_shades(tmp_path / "p", *range(4)), {"dogs": DOGS}, budget=budget).left == 0


def test_progress_tells_rows_and_what_was_spent(shades: Shades, tmp_path: Path) -> None:
    told: list[tuple[int, int, int, bool]] = []

    def progress(spent: Spent) -> None:
        told.append((spent.rows, spent.total, spent.new, spent.calls > 0 < spent.money((1.0, 1.0))))

    folder = paint_shades(tmp_path / "p", 1)
    ask(shades, folder, {"dogs": DOGS})
    paint_shades(folder, 1, 2, 3)
    ask(shades, folder, {"dogs": DOGS}, progress=progress)
    assert told == [(2, 3, 1, True), (3, 3, 2, True)]


class Ended(Exception):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Ended()])
def test_what_is_finished_when_a_table_is_interrupted_is_kept(
    error: BaseException, shades: Shades, tmp_path: Path
) -> None:
    folder = paint_shades(tmp_path / "p", *range(12))

    def interrupt(spent: Spent) -> None:
        if spent.rows == 3:
            raise error

    with pytest.raises(type(error)):
        ask(shades, folder, {"dogs": DOGS}, progress=interrupt)
    stopped = ask(shades, folder, {"dogs": DOGS}, budget=Budget(calls=0))
    assert len(stopped.column("dogs")) == 3 and len(shades.wrote) == 1


def test_a_server_that_goes_down_ends_it_and_keeps_what_is_finished(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", *range(12))
    shades.fails = {shade: ServerError("Cannot reach the server.") for shade in range(5, 12)}
    with pytest.raises(ServerError, match="Cannot reach the server"):
        ask(shades, folder, {"dogs": DOGS})
    shades.fails, shades.read = {}, []
    assert values(ask(shades, folder, {"dogs": DOGS}), "dogs") == list(range(12))
    asked = {shade for _, shade in shades.read}
    assert asked >= set(range(5, 12)) and not asked & {0, 1, 2, 3}


def test_a_model_that_fails_once_marks_the_cell_and_is_asked_again(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", *range(4))
    shades.fails = {2: ModelError("It is too warm.")}
    table = ask(shades, folder, {"dogs": DOGS})
    assert [cell.value for cell in table.column("dogs")][:2] == [0, 1]
    assert table.column("dogs")[2].value is None and "too warm" in table.column("dogs")[2].wrong
    shades.fails, shades.read = {}, []
    assert values(ask(shades, folder, {"dogs": DOGS}), "dogs") == list(range(4))
    assert {shade for _, shade in shades.read} == {2}


def test_a_program_that_fails_on_a_picture_is_kept_as_such(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    divides = Program('img = open_image("Image1.jpg")\nanswer = 6 // (int(query(img, "How many dogs?")) - 1)', DOGS)
    table = ask(shades, folder, {"dogs": divides})
    assert values(table, "dogs") == [None, 6] and "zero" in table.column("dogs")[0].wrong
    shades.read = []
    assert ask(shades, folder, {"dogs": divides}) == table and not shades.read


def test_a_picture_that_is_gone_marks_its_cell_alone(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2, 3)
    pictures = Collection(folder)
    pictures.open()
    (folder / "001.png").unlink()
    with shades.open(workers=1) as vqa:
        cells = vqa.table(pictures, {"dogs": DOGS}).column("dogs")
    assert [cell.value for cell in cells] == [1, None, 3] and "No picture at" in cells[1].wrong


def test_a_first_picture_that_is_gone_marks_its_cell_alone(shades: Shades, tmp_path: Path) -> None:
    folder = paint_shades(tmp_path / "p", 1, 2)
    pictures = Collection(folder)
    pictures.open()
    (folder / "000.png").unlink()
    with shades.open() as vqa:
        assert values(vqa.table(pictures, {"dogs": DOGS}), "dogs") == [None, 2]


def test_pictures_of_one_name_have_rows_of_their_own(shades: Shades, tmp_path: Path) -> None:
    paths = [str(paint_shades(tmp_path / name, shade) / "000.png") for name, shade in (("a", 7), ("b", 8))]
    with shades.open() as vqa:
        assert values(vqa.table(paths, {"dogs": DOGS}), "dogs") == [7, 8]


# -- order and labels --------------------------------------------------------------------------------------------------


def made_of(*cells: Cell | None, kind: str = "yes_no") -> Table:
    column = Column("c", DAY if kind == "yes_no" else DOGS, kind)  # type: ignore[arg-type]
    rows = [Row(f"/{place}.png", {} if cell is None else {"c": cell}) for place, cell in enumerate(cells)]
    return Table((column,), tuple(rows))


def test_unsure_first_puts_what_is_least_sure_before_the_rest() -> None:
    table = made_of(Cell("yes", 0.99), Cell("no", None), Cell("yes", 0.51), Cell(None, None, "?"), Cell("no", 0.7))
    assert [row.picture[1] for row in table.unsure_first().pictures] == ["3", "2", "1", "4", "0"]
    assert [row.picture[1] for row in table.pictures] == list("01234")


def test_pictures_to_label_stand_first_and_a_seed_decides_which() -> None:
    table = made_of(*[Cell("yes", 0.99)] * 40, *[Cell("no", 0.6)] * 4, None)
    picked = pick_for_labels(table, 8, seed=1)
    kinds = [row.picked for row in picked.pictures]
    assert len(picked.pictures) == 45 and sorted(kinds[:10]) == ["random"] * 8 + ["unsure"] * 2
    assert set(kinds[10:]) == {""} and "/44.png" not in {row.picture for row in picked.pictures[:10]}
    assert picked == pick_for_labels(table, 8, seed=1) != pick_for_labels(table, 8, seed=2)
    assert list(picked.rows()[0]) == ["filepath", "picked", "c", "c_chance", "c_wrong", "c_truth"]


def test_labels_correct_what_the_models_alone_say() -> None:
    table = made_of(*[Cell("yes", 0.9)] * 100, *[Cell("no", 0.9)] * 100)
    # Half of what the models call yes is no.
    drawn = [*range(20), *range(100, 120)]
    truths = {f"/{place}.png": Truth("random", {"c": "yes" if place < 100 and place % 2 else "no"}) for place in drawn}
    labelled = with_truths(table, truths)
    (share,) = estimate_shares(labelled, table.columns[0])
    assert share.predicted == 0.5 and 30 < share.estimate.total < 70
    assert share.estimate.total_low <= 50 <= share.estimate.total_high
    assert right_of(labelled, table.columns[0]) == (30, 40)
    assert labelled.column("c")[0].truth == "no" and labelled.column("c")[50].truth is None
    assert {cell.chance for cell in labelled.column("c")} != {0.9}, "chances are fitted to the labels"


def test_labels_of_other_pictures_and_no_random_ones_are_told() -> None:
    table = made_of(Cell("yes", 0.9))
    with pytest.raises(InputError, match=r"The labels name /x\.png and 1 more, which is not among the pictures"):
        with_truths(table, {"/x.png": Truth("random", {"c": "no"}), "/y.png": Truth("random", {})})
    unsure = with_truths(table, {"/0.png": Truth("unsure", {"c": "no"})})
    with pytest.raises(InputError, match="No random picture has a label of c"):
        list(estimate_shares(unsure, table.columns[0]))


# -- files -------------------------------------------------------------------------------------------------------------


ODD = Table(
    (Column("dogs", DOGS, "number"), Column("day", DAY, "yes_no")),
    (
        Row('/a "b",\nc.png', {"dogs": Cell(2, 0.87654321), "day": Cell("yes", 1.0)}),
        Row("/größe.png", {"dogs": Cell(None, None, "It could not be read.")}),
    ),
)


def test_files_hold_the_rows_in_each_format(tmp_path: Path) -> None:
    for name in ("t.csv", "t.json", "t.JSONL"):
        ODD.save(tmp_path / name)
    expected = ODD.rows()
    assert expected[0]["dogs_chance"] == 0.8765 and expected[1]["day_wrong"] == "It was not reached."
    assert json.loads((tmp_path / "t.json").read_text("utf-8")) == expected
    assert [json.loads(line) for line in (tmp_path / "t.JSONL").read_text("utf-8").splitlines()] == expected
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [{name: "" if value is None else str(value) for name, value in row.items()} for row in expected]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.JSONL", "t.csv", "t.json"]


def test_a_file_of_another_ending_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"A table is not written to 't.txt'. End its name in .csv, .json, .jsonl"):
        ODD.save(tmp_path / "t.txt")
    assert not list(tmp_path.iterdir())


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """No file grows beyond ``most`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("ending", ["csv", "json", "jsonl"])
def test_a_full_disk_leaves_the_file_as_it_was(ending: str, tmp_path: Path) -> None:
    file = tmp_path / f"t.{ending}"
    file.write_text("before")
    large = replace(ODD, pictures=ODD.pictures * 2000)
    with small_files(10_000), pytest.raises(SetupError) as caught:
        large.save(file)
    assert str(caught.value).startswith(f"Cannot write {file}: File too large.") and "\n" not in str(caught.value)
    assert file.read_text() == "before" and list(tmp_path.iterdir()) == [file]


def test_a_folder_without_rights_is_told_in_one_line(tmp_path: Path) -> None:
    def save() -> str:
        if os.geteuid() == 0:  # to whom all is allowed
            os.setuid(65534)
        ODD.save(tmp_path / "t.csv")
        return "written"

    tmp_path.chmod(0o500)
    try:
        told = forked(save)
    finally:
        tmp_path.chmod(0o700)
    assert told.startswith(f"SetupError: Cannot write {tmp_path}/t.csv: Permission denied.") and "\n" not in told
    with pytest.raises(SetupError, match="No such file or directory"):
        ODD.save(tmp_path / "nowhere" / "t.csv")
    assert not list(tmp_path.iterdir())


# -- what answers are kept under ---------------------------------------------------------------------------------------


def identity(**values: object) -> str:
    names = {name.replace("__", "."): value for name, value in values.items()}
    return identity_of(configure("mini", [Layer("here", names)]))


def test_identity_changes_with_what_may_change_an_answer() -> None:
    plain = identity()
    assert len(plain) == 16 and plain == identity()
    changes: list[dict[str, object]] = [
        {"seed": 1},
        {"query__captions": 3},
        {"query__selection": "fixed"},
        {"writer__shots": 2},
        {"strict_domain": False},
        {"matcher__dtype": "bfloat16"},
    ]
    changed = [identity(**change) for change in changes]
    assert len({plain, *changed}) == len(changes) + 1


def test_identity_stays_with_what_changes_no_answer() -> None:
    free: dict[str, object] = {"workers": 3, "batch_wait": 0.1, "max_batch": 2, "remember": 0, "fresh": True}
    assert identity(**free, ahead=False) == identity()


def test_identity_changes_with_a_file_of_weights(tmp_path: Path) -> None:
    folder = Path(write_blip(tmp_path / "matcher", "matcher"))
    spec = f"blip:{folder}"
    before = identity(matcher=spec)
    assert before != identity() and before == identity(matcher=spec)
    weights = folder / "model.safetensors"
    stat = weights.stat()
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))
    touched = identity(matcher=spec)
    weights.write_bytes(weights.read_bytes() + b"\0")
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert len({before, touched, identity(matcher=spec)}) == 3


def test_identity_changes_with_a_prompt_set(tmp_path: Path) -> None:
    import codevqa.prompts

    folder = tmp_path / "gqa"
    shutil.copytree(Path(codevqa.prompts.__file__).parent / "gqa", folder)
    before = identity(prompts=str(folder))
    changed = 0
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        text = file.read_text("utf-8")
        if "umbrella" in text:
            file.write_text(text.replace("umbrella", "parasol"), "utf-8")
            changed += 1
    assert changed and load_prompt_set(folder)
    assert before not in (identity(), identity(prompts=str(folder)))


def test_another_setting_asks_anew_and_the_first_stays(shades: Shades, tmp_path: Path) -> None:
    pictures = Collection(paint_shades(tmp_path / "p", 1, 2))

    def asked(**values: object) -> set[int]:
        forget_process()
        shades.read = []
        with shades.open(configure("mini", [Layer("here", values)]), workers=2) as vqa:
            vqa.table(Collection(pictures.sources), {"dogs": DOGS})
        return {shade for _, shade in shades.read}

    assert asked() == asked(seed=1) == {1, 2}
    assert asked() == asked(seed=1) == asked(workers=3) == set()
