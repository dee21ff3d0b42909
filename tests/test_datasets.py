"""What is missing from data sets or of another kind is said in one line; and what of a data set was asked."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import BOX, GLASS, PHONES, SUIT, dump, lines, only, paint
from eval_kit import fake_engine
from report_kit import read

from codevqa.core.errors import ImageError, InputError, SetupError, UnknownNameError
from codevqa.eval import Store, evaluate
from codevqa.eval.datasets import LOADERS, Split, open_dataset
from codevqa.eval.datasets.files import stream_records
from codevqa.eval.datasets.loader import sample
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.table import summary_lines
from codevqa.eval.task import Located


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_split_is_named_with_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_dataset(name, tmp_path, LOADERS[name].splits[0])
    message = str(caught.value)
    assert "\n" not in message and str(tmp_path) in message and LOADERS[name].splits[0] in message
    assert ("mini-data" if name == "collections" else "https://") in message
    with pytest.raises(SetupError, match=f"'nosplit' is none of the splits {LOADERS[name].splits[0]}"):
        open_dataset(name, tmp_path, "nosplit")


def test_missing_pictures_are_named_before_anything_is_asked(tmp_path: Path) -> None:
    dump(tmp_path / "questions" / "val_all_questions.json", {str(place): SUIT for place in range(20)})
    with pytest.raises(SetupError, match=r"looked for images/2383860\.jpg, .*images\.zip"):
        open_dataset("gqa", tmp_path, "val_all")
    (tmp_path / "images.zip").write_bytes(b"half a download")
    with pytest.raises(SetupError, match=r"images\.zip is no readable archive"):
        open_dataset("gqa", tmp_path, "val_all")
    example = next(iter(open_dataset("gqa", tmp_path, "val_all", pictures=False)))
    with pytest.raises(ImageError, match=r"No picture at .*images.2383860\.jpg"):
        only(example.images).load()
    dump(tmp_path / "questions" / "val_all_questions.json", {"1": SUIT, "2": SUIT | {"imageId": "n5"}})
    paint(tmp_path / "images" / "n5.jpg")
    assert len(list(open_dataset("gqa", tmp_path, "val_all"))) == 2, "a few that are missing are not the data set's"


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("gqa", "questions/val_all_questions.json", {"1": {"question": "What?"}}),
        ("covr", "val_all.jsonl", lines({"utterance": "What?", "answer": 1})),
        ("covr", "val_all.jsonl", lines(PHONES | {"scenes": []})),
        ("nlvr2", "val_all.json", lines(GLASS | {"label": 0})),
        ("nlvr", "val_all.json", lines(GLASS)),
        ("vqav2", "val_all_questions.json", {"questions": [{"question": "What?"}]}),
        ("okvqa", "val_all.json", "[1, 2]"),
        ("gqa", "questions/val_all_questions.json", '{"1": {"a": 1}, "2": {"a": '),
        ("gqa", "questions/val_all_questions.json", "[" * 100_000),
    ],
)
def test_files_of_another_kind_are_refused_in_one_line(tmp_path: Path, name: str, file: str, content: Any) -> None:
    dump(tmp_path / file, content)
    with pytest.raises(InputError, match="val_all"):
        list(open_dataset(name, tmp_path, "val_all", pictures=False))


def test_names_options_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="gqa, covr, nlvr2, nlvr, vqav2, okvqa"):
        open_dataset("clevr", tmp_path, "val")
    with pytest.raises(InputError, match="no permutations"):
        open_dataset("covr", tmp_path, "val", permutations=2)
    with pytest.raises(InputError, match="from 1 to 6"):
        open_dataset("nlvr", tmp_path, "dev", permutations=7)
    with pytest.raises(InputError, match="cannot be a split"):
        open_dataset("gqa", tmp_path, "../val")
    with pytest.raises(SetupError, match="does not exist"):
        open_dataset("gqa", tmp_path / "none", "val_all")
    dump(tmp_path / "file", "")
    with pytest.raises(SetupError, match="is a file, not a folder"):
        open_dataset("gqa", tmp_path / "file", "val_all")


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.eval.datasets.files.LARGEST", 10_000)
    with zipfile.ZipFile(tmp_path / "file.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("file.json", '[{"a": "' + "b" * 100_000)
    with pytest.raises(InputError, match="more than 10,000 characters"):
        list(stream_records(Located(tmp_path / "file.zip", "file.json")))


def statements(folder: Path, count: int = 8) -> Path:
    """NLVR's dev split with six pictures a statement, two statements a group."""
    rows = [{**BOX, "identifier": f"{n // 2}-{n % 2}", "directory": "0"} for n in range(count)]
    dump(folder / "dev" / "dev.json", lines(*rows))
    for n in range(count):
        for k in range(6):
            paint(folder / "dev" / "images" / "0" / f"dev-{n // 2}-{n % 2}-{k}.png")
    return folder


def photographs(folder: Path, split: str, count: int = 6) -> Path:
    dump(folder / "questions" / f"{split}_questions.json", {f"{n:02}": SUIT for n in range(count)})
    paint(folder / "images" / "2383860.jpg")
    return folder


def ids(split: Split) -> list[str]:
    return [example.id for example in split]


def test_a_sample_keeps_groups_whole_and_the_same_seed_draws_the_same(tmp_path: Path) -> None:
    data = open_dataset("nlvr", statements(tmp_path), "dev")
    drawn = sample(data, 30, 1)
    groups: dict[str, int] = {}
    for example in drawn:
        groups[example.group] = groups.get(example.group, 0) + 1
    assert list(groups.values()) == [12, 12]  # a third would be more than thirty
    assert ids(drawn) == ids(sample(data, 30, 1)) and ids(drawn) == [id for id in ids(data) if id in set(ids(drawn))]
    assert len({tuple(ids(sample(data, 12, seed))) for seed in range(8)}) > 1
    assert drawn.part == ("a random sample of 24 of 48 questions in 2 whole groups, seed 1",)
    single = open_dataset("gqa", photographs(tmp_path, "val_balanced"), "val_balanced")
    assert len(ids(sample(single, 4, 0))) == 4
    for whole, count in ((data, 11), (single, 0), (single, 7)):
        with pytest.raises(InputError):
            sample(whole, count, 0)


def test_every_part_of_a_split_is_told_from_the_whole(tmp_path: Path) -> None:
    whole = open_dataset("nlvr", statements(tmp_path / "nlvr"), "dev")
    assert whole.part == ()
    assert open_dataset("nlvr", tmp_path / "nlvr", "dev", permutations=1).part == ("1 of 6 pictures a statement",)
    everything = open_dataset("gqa", photographs(tmp_path, "val_all"), "val_all")
    assert everything.part == ("val_all, where testdev_balanced is reported",)
    mine = open_dataset("gqa", photographs(tmp_path, "mine"), "mine")
    assert mine.part == ("mine is none of GQA's",)


def test_a_figure_of_a_part_says_so_wherever_it_stands(tmp_path: Path) -> None:
    data = open_dataset("nlvr", statements(tmp_path / "nlvr"), "dev", permutations=2)
    with fake_engine() as vqa:
        evaluate(vqa, data, tmp_path / "run", methods=["pnpvqa"], limit=5).close()
    note = "not the official split: 2 of 6 pictures a statement; only questions 1 to 5"
    with Store.open(tmp_path / "run") as store:
        assert summary_lines(store.info, summary_of(store))[1] == note
    shown = read(tmp_path / "run").text
    assert shown.count("2 of 6 pictures a statement; only questions 1 to 5") == 2  # in the head, and by the figure
    assert "Not the official split: 2 of 6" in shown


def test_gqa_s_choices_are_found_beside_the_questions(tmp_path: Path) -> None:
    folder = photographs(tmp_path / "gqa", "val_balanced", 2)
    known = {f"{n:02}": {"valid": ["suit", "yes"], "plausible": ["suit"]} for n in range(2)}
    dump(folder / "eval" / "val_choices.json", known)
    with fake_engine() as vqa:
        data = open_dataset("gqa", tmp_path, "val_balanced")
        with evaluate(vqa, data, tmp_path / "run", methods=["pnpvqa"]) as store:
            corpus = summary_of(store).methods["pnpvqa"].corpus  # every answer is yes
    assert [str(corpus[name])[:5] for name in ("validity", "plausibility")] == ["1.000", "0.000"]
    assert "validity 100.00" in read(tmp_path / "run").text
