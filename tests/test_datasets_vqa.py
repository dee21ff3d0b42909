"""VQAv2 and OK-VQA from their files."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import dump, only, pack, paint, seen

from codevqa.core.errors import InputError, SetupError
from codevqa.eval.datasets import open_dataset
from codevqa.eval.report.clusters import clustered


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
    assert (data.split, data.prompts, data.notes, len(data.sources)) == ("val2014", "vqav2", (), 2)
    assert [one.id for one in data] == ["42000", "42001", "458752000"]
    assert second.gold == tuple(f"nets {place}" for place in range(1, 11))
    assert second.groups == {"question_type": "what is", "answer_type": "other"}
    assert second.record == {"image_id": "42", "multiple_choice_answer": "net"}
    assert first.groups == {"question_type": "unknown", "answer_type": "unknown"}
    assert (third.gold, third.groups, third.cluster) == ((), {}, "458752")
    assert first.cluster == second.cluster == "42"
    assert only(third.images).name == "COCO_val2014_000000458752.jpg"


def test_questions_about_pictures_of_other_names_do_not_go_together(tmp_path: Path) -> None:
    names = ["cat_1.png", "dog_1.png", "cats/1.png", "dogs/1.png", "val2014/COCO_val2014_000000000001.jpg"]
    for name in names:
        paint(tmp_path / "images" / name)
    rows = [{"question_id": k, "question": "What?", "image": name, "answer": ["a"]} for k, name in enumerate(names)]
    dump(tmp_path / "vqa_val2014.json", rows)
    data = list(open_dataset("vqav2", tmp_path, "val"))
    assert len({one.cluster for one in data}) == 5 and "1" in {one.cluster for one in data}
    assert len({clustered(one, "pictures").cluster for one in data}) == 5


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
    data = open_dataset("ok-vqa", tmp_path, "test")
    assert data.prompts == "okvqa"
    first = next(iter(data))
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
