"""VQAv2 and OK-VQA from their files, and rows as the Hugging Face hub has them."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import SUIT, dump, only, pack, paint, seen
from PIL import Image

from codevqa.core.errors import InputError, SetupError, UnknownNameError
from codevqa.eval.datasets import open_dataset
from codevqa.eval.datasets.hub import Rows, image_index


def vqa(folder: Path, prefix: str, split: str = "val2014", *, stemmed: bool = False, scale: int = 1000) -> None:
    """Three questions about two pictures, the annotations in another order and without one."""
    head = {"info": {"version": "2.0"}, "task_type": "Open-Ended", "license": {"name": "CC BY 4.0"}}
    asked = [
        {"image_id": image, "question": f"What is {k}?", "question_id": image * scale + k}
        for image, k in ((42, 0), (42, 1), (458752, 0))
    ]
    told = []
    for row in reversed(asked[:2]):
        answers: list[dict[str, Any]] = [
            {"answer": f"nets {place}", "answer_confidence": "yes", "answer_id": place} for place in range(1, 11)
        ]
        if stemmed:
            answers = [one | {"raw_answer": one["answer"], "answer": "net"} for one in answers]
        told.append({"question_id": row["question_id"], "image_id": row["image_id"], "answers": answers})
    told[0] |= {"question_type": "what is", "answer_type": "other", "multiple_choice_answer": "net"}
    dump(folder / f"{prefix}OpenEnded_mscoco_{split}_questions.json", head | {"questions": asked})
    dump(folder / f"{prefix}mscoco_{split}_annotations.json", head | {"annotations": told})
    for number in (42, 458752):
        paint(folder / "val2014" / f"COCO_val2014_{number:012d}.jpg")


@pytest.mark.parametrize("prefix", ["v2_", ""])
def test_vqav2(tmp_path: Path, prefix: str) -> None:
    vqa(tmp_path, prefix)
    data = open_dataset("vqav2", tmp_path, "val")
    first, second, third = data
    assert (data.split, data.notes, len(data.sources)) == ("val2014", (), 2)
    assert [one.id for one in data] == ["42000", "42001", "458752000"]
    assert second.gold == tuple(f"nets {place}" for place in range(1, 11))
    assert second.groups == {"question_type": "what is", "answer_type": "other"}
    assert second.record == {"image_id": "42", "multiple_choice_answer": "net"}
    assert first.groups == {"question_type": "unknown", "answer_type": "unknown"}
    assert (third.gold, third.groups, third.cluster) == ((), {}, "458752")
    assert first.cluster == second.cluster == "42"
    assert only(third.images).name == "COCO_val2014_000000458752.jpg"


def test_vqav2_in_archives_and_without_annotations(tmp_path: Path) -> None:
    vqa(tmp_path, "v2_")
    for name in ("OpenEnded_mscoco_val2014_questions", "mscoco_val2014_annotations"):
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w") as out:
            out.write(tmp_path / f"v2_{name}.json", f"v2_{name}.json")
        (tmp_path / f"v2_{name}.json").unlink()
    pack(tmp_path / "val2014", tmp_path / "val2014.zip")
    data = open_dataset("vqav2", tmp_path, "val2014")
    assert [len(one.gold) for one in data] == [10, 10, 0]
    assert all(len(seen(one)) == 1 for one in data)
    (tmp_path / "mscoco_val2014_annotations.zip").unlink()
    data = open_dataset("vqav2", tmp_path, "val2014")
    assert [one.gold for one in data] == [(), (), ()]
    assert "v2_mscoco_val2014_annotations.json" in only(data.notes)


def test_vqav2_test_splits_and_lists(tmp_path: Path) -> None:
    asked = [{"image_id": 1, "question": "What?", "question_id": 1000}]
    dump(tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json", {"questions": asked})
    with pytest.raises(SetupError, match=r"looked for COCO_test2015_000000000001\.jpg"):
        open_dataset("vqav2", tmp_path, "test-dev")
    paint(tmp_path / "test2015" / "COCO_test2015_000000000001.jpg")
    data = open_dataset("vqav2", tmp_path, "test-dev")
    assert (only(data).gold, data.notes) == ((), ())
    assert only(only(data).images).name == "COCO_test2015_000000000001.jpg"
    image = "train2014/COCO_train2014_000000203166.jpg"
    row = {"question_id": 203166006, "question": "Pelicans?", "image": image, "dataset": "vqa", "answer": ["no", "no"]}
    dump(tmp_path / "annotations" / "vqa_val4000.json", [row])
    paint(tmp_path / "images" / image)
    for split in ("val4000", "vqa_val4000"):
        example = only(open_dataset("vqav2", tmp_path, split))
        assert (example.id, example.gold, example.cluster) == ("203166006", ("no", "no"), "203166")


def test_okvqa_keeps_raw_and_stemmed_answers(tmp_path: Path) -> None:
    vqa(tmp_path, "", stemmed=True, scale=10)
    first = next(iter(open_dataset("ok-vqa", tmp_path, "test")))
    assert first.gold[:2] == ("nets 1", "nets 2")
    expected = {"answer_id": 1, "raw_answer": "nets 1", "answer": "net", "answer_confidence": "yes"}
    assert first.record["answers"][0] == expected
    assert len(first.record["answers"]) == 10


def test_vqa_files_of_other_data_sets_are_refused(tmp_path: Path) -> None:
    vqa(tmp_path, "", stemmed=True, scale=10)
    with pytest.raises(InputError, match="is not VQAv2's"):
        open_dataset("vqav2", tmp_path, "val")
    vqa(tmp_path, "v2_", stemmed=True)
    with pytest.raises(InputError, match="OK-VQA"):
        open_dataset("vqav2", tmp_path, "val")
    asked = [{"image_id": 1, "question": "What?", "question_id": number} for number in range(9_010)]
    dump(tmp_path / "OpenEnded_mscoco_val2014_questions.json", {"questions": asked})
    with pytest.raises(InputError, match="more than 9,009"):
        open_dataset("okvqa", tmp_path, "val")


# Rows of the hub


def red() -> Image.Image:
    return Image.new("RGB", (4, 4), "red")


def test_hub_gqa_joins_pictures_by_id() -> None:
    table = [SUIT | {"id": "00142"}]
    pictures = image_index([{"id": "2383860", "image": red()}])
    data = Rows("gqa", table, "testdev", pictures=pictures)
    example = only(data)
    assert (data.name, data.split, data.prompts) == ("gqa", "testdev", "gqa")
    assert (example.id, example.gold, example.cluster, seen(example)) == ("00142", ("suit",), "2383860", [(255, 0, 0)])
    assert example.groups["detailed"] == "categoryThat"
    assert len(list(data)) == 1, "it can be read again"
    with pytest.raises(InputError, match=r"Row 1 .* picture 2383860 is not among those given"):
        list(Rows("gqa", table, "testdev"))


def test_hub_vqa() -> None:
    answers = [{"answer": "net", "answer_confidence": "yes", "answer_id": place} for place in range(1, 11)]
    row = {"question_id": 458752000, "image_id": 458752, "question": "What?", "image": red(), "answers": answers}
    row |= {"question_type": "what", "answer_type": "other", "multiple_choice_answer": "net"}
    hidden = row | {"answers": None}
    first, second = Rows("vqav2", [row, hidden], "validation")
    assert (first.id, first.gold, first.cluster) == ("458752000", ("net",) * 10, "458752")
    assert first.groups == {"question_type": "what", "answer_type": "other"}
    assert second.gold == ()
    okay = {"question_id": "2971475", "question": "What?", "image": red(), "answers": ["race", "race", "bike"]}
    example = only(Rows("okvqa", [okay | {"question_type": "one", "answer_type": "other"}], "val2014"))
    assert (example.id, example.gold) == ("2971475", ("race", "race", "bike"))
    assert seen(example) == [(255, 0, 0)]
    assert "image" not in example.record


def test_hub_nlvr2_zero_is_true() -> None:
    pair = {"left_image": red(), "right_image": Image.new("RGB", (4, 4), "blue")}
    rows = [
        pair | {"identifier": "dev-850-0-0", "sentence": "A.", "label": label, "directory": None}
        for label in (0, 1, -1)
    ]
    data = list(Rows("nlvr2", rows, "validation"))
    assert [one.gold for one in data] == [("yes",), ("no",), ()]
    assert (data[0].cluster, data[0].record["group"]) == ("dev-850-0", "dev-850--0")
    assert seen(data[0]) == [(255, 0, 0), (0, 0, 255)]
    text = only(Rows("nlvr2", [pair | {"question_id": "7", "question": "A.", "answer": "True"}], "balanced_dev"))
    assert (text.id, text.gold, text.question, text.form) == ("7", ("yes",), "A.", "set")


def test_hub_mistakes() -> None:
    with pytest.raises(UnknownNameError, match="gqa, vqav2, okvqa, nlvr2"):
        Rows("covr", [], "test")
    with pytest.raises(InputError, match="Row 1 is not one of VQAv2 as on the hub: it has no 'image_id'"):
        list(Rows("vqav2", [{"question": "What?"}], "validation"))
    with pytest.raises(InputError, match="label 2"):
        list(Rows("nlvr2", [{"identifier": "dev-1-0-0", "sentence": "A.", "label": 2}], "validation"))
