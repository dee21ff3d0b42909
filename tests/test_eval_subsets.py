"""What of a data set was asked: samples, parts that are not the official split, and files of other data sets."""

from pathlib import Path

import pytest
from data_files import BOX, SUIT, dump, lines, paint
from eval_kit import fake_engine
from report_kit import read

from codevqa.core.errors import InputError
from codevqa.eval import Store, evaluate, open_dataset
from codevqa.eval.datasets import Split
from codevqa.eval.datasets.sample import sample
from codevqa.eval.report.reading import summary_of
from codevqa.eval.report.table import summary_lines


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
    said = "not the official split: 2 of 6 pictures a statement; only questions 1 to 5"
    with Store.open(tmp_path / "run") as store:
        assert summary_lines(store.info, summary_of(store))[1] == said
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
