"""GQA in the layouts that users have: questions, chunks, lists, archives, groups."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from data_files import SUIT, dump, only, pack, paint, seen

from codevqa.core.errors import InputError, SetupError
from codevqa.core.images import load_picture
from codevqa.eval.datasets import open_dataset
from codevqa.eval.datasets.gqa import choices
from codevqa.eval.datasets.gqa_groups import groups
from codevqa.eval.task import PictureFile
from codevqa.miniworld.export import write as write_mini


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "mini"
    write_mini(out, images=12, splits=("val", "test_combinations"))
    return out


@pytest.mark.parametrize("inside", ["questions1.2", "questions", "annotations", "gqa/questions1.2", "GQA/questions"])
def test_gqa_reads_both_layouts(tmp_path: Path, inside: str) -> None:
    dump(tmp_path / inside / "testdev_balanced_questions.json", {"02763807": SUIT, "14199179": SUIT})
    paint((tmp_path / inside).parent / "images" / "2383860.jpg")
    data = open_dataset("gqa", tmp_path, "testdev_balanced")
    first, second = data
    assert (data.name, data.split, data.prompts, data.notes) == ("gqa", "testdev_balanced", "gqa", ())
    assert (first.id, second.id) == ("02763807", "14199179")
    assert (first.question, first.gold, first.form) == (SUIT["question"], ("suit",), "image")
    assert first.cluster == "2383860"
    assert only(first.images).name == "2383860.jpg"
    assert first.record["groups"] == SUIT["groups"]
    assert first.record["entailed"] == SUIT["entailed"]
    assert seen(first)[0][0] > 200
    assert [one.id for one in data] == ["02763807", "14199179"], "reading again gives the same"
    json.dumps(first.record)


def test_gqa_reads_out_of_the_archives(tmp_path: Path) -> None:
    dump(tmp_path / "questions1.2" / "testdev_balanced_questions.json", {"1": SUIT})
    paint(tmp_path / "images" / "2383860.jpg", "blue")
    pack(tmp_path / "questions1.2", tmp_path / "questions1.2.zip")
    pack(tmp_path / "images", tmp_path / "images.zip")
    example = only(open_dataset("gqa", tmp_path, "testdev_balanced"))
    assert example.images == (PictureFile(tmp_path / "images.zip", "images/2383860.jpg"),)
    assert seen(example)[0][2] > 200


def test_gqa_reads_the_chunks_in_order_and_misses_none(tmp_path: Path) -> None:
    for number in (10, 2, 1, 0, 3, 4, 5, 6, 7, 8, 9):
        name = f"questions1.2/train_all_questions/train_all_questions_{number}.json"
        dump(tmp_path / name, {f"{number}1": SUIT, f"{number}2": SUIT})
    paint(tmp_path / "images" / "2383860.jpg")
    expected = [f"{number}{k}" for number in range(11) for k in (1, 2)]
    assert [one.id for one in open_dataset("gqa", tmp_path, "train_all")] == expected
    pack(tmp_path / "questions1.2", tmp_path / "questions1.2.zip")
    assert [one.id for one in open_dataset("gqa", tmp_path, "train_all")] == expected


def test_gqa_says_which_chunk_is_missing(tmp_path: Path) -> None:
    for number in (0, 1, 3):
        dump(tmp_path / f"questions/train_all_questions/train_all_questions_{number}.json", {f"{number}": SUIT})
    with pytest.raises(InputError, match=r"train_all_questions_2\.json is missing"):
        open_dataset("gqa", tmp_path, "train_all", pictures=False)
    (tmp_path / "questions/train_all_questions/train_all_questions_3.json").unlink()
    assert "2 of its 10" in only(open_dataset("gqa", tmp_path, "train_all", pictures=False).notes)


def test_gqa_reads_the_lists_of_lavis(tmp_path: Path) -> None:
    row = SUIT | {"image": "2383860.jpg", "question_id": 14199179}
    dump(tmp_path / "annotations" / "val_balanced_questions_sample2000.json", [row, row | {"question_id": 7}])
    paint(tmp_path / "images" / "2383860.jpg")
    first, second = open_dataset("gqa", tmp_path, "val_balanced_questions_sample2000")
    assert (first.id, second.id, first.gold, first.cluster) == ("14199179", "7", ("suit",), "2383860")


def test_gqa_splits_without_answers(tmp_path: Path) -> None:
    row = {"imageId": "n1", "question": "Is it red?", "isBalanced": True}
    dump(tmp_path / "questions" / "test_balanced_questions.json", {"0001": row})
    example = only(open_dataset("gqa", tmp_path, "test_balanced", pictures=False))
    assert (example.id, example.gold, example.groups) == ("0001", (), {})


def test_gqa_choices(tmp_path: Path) -> None:
    told = {"1": {"valid": ["red"], "plausible": ["red"]}}
    dump(tmp_path / "eval" / "val_choices.json", told)
    dump(tmp_path / "eval" / "train_choices" / "train_all_questions_0.json", {"2": told["1"]})
    assert dict(choices(tmp_path, "val_balanced")) == told
    assert [key for key, _ in choices(tmp_path, "train_all")] == ["2"]
    with pytest.raises(SetupError, match=r"testdev_choices\.json"):
        list(choices(tmp_path, "testdev_balanced"))


def step(operation: str, argument: str) -> dict[str, Any]:
    return {"operation": operation, "argument": argument, "dependencies": []}


@pytest.mark.parametrize(
    ("program", "spatial", "final", "steps"),
    [
        ([step("select", "a (1)"), step("query", "name")], "no", "no", 1),
        ([step("select", "bag (1)"), step("relate", "cup,to the left of,s (2)"), step("exist", "?")], "yes", "yes", 2),
        (
            [step("relate", "girl,to the left of,s (3)"), step("verify rel", "coat,wearing,o (-)")],
            *("yes", "no", 2),
        ),
        ([step("choose rel", "chair,to the right of|to the left of,s (1,2)")], "yes", "yes", 1),
        ([step("relate", "cup, the red one,above,o (4)")], "yes", "yes", 1),
        ([step("relate", "cup,same color,s (4)")], "no", "no", 1),
        ([step("verify vposition", "top")], "yes", "yes", 1),
        ([step("query", "hposition")], "yes", "yes", 1),
        ([step("choose name", "above|below")], "no", "no", 0),
    ],
)
def test_gqa_spatial_and_steps(program: list[dict[str, Any]], spatial: str, final: str, steps: int) -> None:
    found = groups({"question": "What?", "semantic": program})
    assert (found["spatial"], found["spatial_final"], found["steps"]) == (spatial, final, str(steps))


def test_gqa_types() -> None:
    found = groups(SUIT)
    kinds = ("structural", "semantic", "detailed", "open", "words", "steps", "and", "or")
    assert [found[kind] for kind in kinds] == ["query", "cat", "categoryThat", "open", "7", "2", "no", "no"]
    logical = groups(SUIT | {"types": {"structural": "logical"}, "semantic": [step("exist", "?"), step("and", "")]})
    assert (logical["open"], logical["detailed"], logical["and"], logical["or"]) == ("binary", "other", "yes", "no")
    chosen = groups(SUIT | {"semantic": [step("choose color", "red or blue")]})
    assert chosen["or"] == "no", "a choice between two is not a disjunction"
    assert groups(SUIT | {"semantic": [step("or", "")]})["or"] == "yes"


def test_mini_gqa(mini: Path) -> None:
    every = list(open_dataset("gqa", mini, "val_all"))
    balanced = list(open_dataset("gqa", mini / "gqa", "val_balanced"))
    files = json.loads((mini / "gqa/questions1.2/val_all_questions.json").read_text())
    assert [one.id for one in every] == list(files)
    assert [one.id for one in balanced] == [key for key, row in files.items() if row["isBalanced"]]
    counts = Counter(one.groups["structural"] for one in every)
    assert counts == Counter(row["types"]["structural"] for row in files.values())
    logical = sum(one.groups["and"] == "yes" or one.groups["or"] == "yes" for one in every)
    assert logical == counts["logical"] > 0
    assert {one.groups["open"] for one in every if one.groups["structural"] == "query"} == {"open"}
    kinds = [one.groups["detailed"] for one in every if one.groups["spatial"] == "yes"]
    assert {"relVerify", "relVerifyCr", "relChooser"} & set(kinds)
    assert not {"directOf", "chooseAttr", "existAnd", "twoSame"} & set(kinds)
    assert len({one.cluster for one in every}) == 12
    assert load_picture(every[0].images[0].load()).pixels.size[0] > 100
    assert len(list(open_dataset("gqa", mini, "testdev_combinations_balanced"))) > 0
