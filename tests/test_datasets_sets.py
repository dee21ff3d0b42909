"""Each data set in the layouts that users have: ids, questions, gold answers, groups, clusters and pictures."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import BOX, GLASS, PHONES, SUIT, dump, lines, only, pack, paint, seen
from PIL import Image

from codevqa.core.errors import InputError, SetupError
from codevqa.eval.datasets import open_dataset
from codevqa.eval.datasets.gqa import groups
from codevqa.eval.task import DatasetPicture


@pytest.mark.parametrize("inside", ["questions1.2", "annotations", "GQA/questions"])
def test_gqa_reads_both_layouts_and_keeps_leading_zeros(tmp_path: Path, inside: str) -> None:
    dump(tmp_path / inside / "testdev_balanced_questions.json", {"02763807": SUIT, "14199179": SUIT})
    paint((tmp_path / inside).parent / "images" / "2383860.jpg")
    data = open_dataset("gqa", tmp_path, "testdev_balanced")
    first, second = data
    assert (data.name, data.split, data.prompts, data.notes) == ("gqa", "testdev_balanced", "gqa", ())
    assert (first.id, second.id) == ("02763807", "14199179")
    assert (first.question, first.gold, first.form) == (SUIT["question"], ("suit",), "image")
    assert (first.cluster, only(first.images).name) == ("2383860", "2383860.jpg")
    assert {name: first.record[name] for name in ("groups", "entailed")} == {
        name: SUIT[name] for name in ("groups", "entailed")
    }
    assert [example.id for example in data] == ["02763807", "14199179"], "reading again gives the same"


def test_gqa_reads_the_lists_of_lavis_and_splits_without_answers(tmp_path: Path) -> None:
    row = SUIT | {"image": "2383860.jpg", "question_id": 14199179}
    dump(tmp_path / "annotations" / "val_balanced_questions_sample2000.json", [row, row | {"question_id": 7}])
    first, second = open_dataset("gqa", tmp_path, "val_balanced_questions_sample2000", pictures=False)
    assert (first.id, second.id, first.gold, first.cluster) == ("14199179", "7", ("suit",), "2383860")
    hidden = {"imageId": "n1", "question": "Is it red?", "isBalanced": True}
    dump(tmp_path / "questions" / "test_balanced_questions.json", {"0001": hidden})
    example = only(open_dataset("gqa", tmp_path, "test_balanced", pictures=False))
    assert (example.id, example.gold, example.groups) == ("0001", (), {})


def step(operation: str, argument: str) -> dict[str, Any]:
    return {"operation": operation, "argument": argument, "dependencies": []}


@pytest.mark.parametrize(
    ("program", "spatial", "final", "steps"),
    [
        ([step("select", "a (1)"), step("query", "name")], "no", "no", 1),
        ([step("select", "bag (1)"), step("relate", "cup,to the left of,s (2)"), step("exist", "?")], "yes", "yes", 2),
        ([step("relate", "girl,to the left of,s (3)"), step("verify rel", "coat,wearing,o (-)")], "yes", "no", 2),
        ([step("choose rel", "chair,to the right of|to the left of,s (1,2)")], "yes", "yes", 1),
        ([step("relate", "cup,same color,s (4)")], "no", "no", 1),
        ([step("verify vposition", "top")], "yes", "yes", 1),
    ],
)
def test_gqa_spatial_and_steps(program: list[dict[str, Any]], spatial: str, final: str, steps: int) -> None:
    labels = groups({"question": "What?", "semantic": program})
    assert (labels["spatial"], labels["spatial_final"], labels["steps"]) == (spatial, final, str(steps))


def test_gqa_types_and_connectives() -> None:
    kinds = ("structural", "semantic", "detailed", "open", "words", "steps", "and", "or")
    assert [groups(SUIT)[kind] for kind in kinds] == ["query", "cat", "categoryThat", "open", "7", "2", "no", "no"]
    logical = groups(SUIT | {"types": {"structural": "logical"}, "semantic": [step("exist", "?"), step("and", "")]})
    assert (logical["open"], logical["detailed"], logical["and"], logical["or"]) == ("binary", "other", "yes", "no")
    assert groups(SUIT | {"semantic": [step("or", "")]})["or"] == "yes"
    chosen = groups(SUIT | {"semantic": [step("choose color", "red or blue")]})
    assert chosen["or"] == "no", "a choice between two is not a disjunction"


def test_covr_finds_pictures_of_all_three_sources(tmp_path: Path) -> None:
    scenes = ["7", "8", "test1-0-1-img0", "ice_skating_12"]
    root = tmp_path / "COVR-v1_0"  # as its archive unpacks
    dump(root / "val.jsonl", lines(PHONES | {"scenes": scenes}))
    names = ("VG_100K/7.jpg", "VG_100K_2/8.jpg", "test1-0-1-img0.png", "of500_images/ice_skating/ice_skating_12.jpg")
    for name in names:
        paint(root / "images" / name)
    example = only(open_dataset("covr", tmp_path, "val"))
    assert example.images == tuple(DatasetPicture(root / "images" / name) for name in names)
    assert (example.id, example.form, example.gold) == ("val_test_747468", "set", ("yes",))
    assert example.groups == {"images": "4", "pattern": "quantifier_same_attr"}


def test_covr_answers_become_text_and_paraphrases_are_asked(tmp_path: Path) -> None:
    answers = {"yes": True, "no": False, "0": 0, "3": 3, "red": "red"}
    dump(tmp_path / "val.jsonl", lines(*(PHONES | {"answer": answer} for answer in answers.values())))
    assert [only(example.gold) for example in open_dataset("covr", tmp_path, "val", pictures=False)] == list(answers)
    rows = [PHONES | {"paraphrased": "Same?"}, PHONES | {"rephrase": "Alike?"}, PHONES | {"paraphrased": None}]
    dump(tmp_path / "test.jsonl", lines(*rows))
    for split in ("test", "test_paraphrased"):
        asked = [example.question for example in open_dataset("covr", tmp_path, split, pictures=False)]
        assert asked == ["Same?", "Alike?", PHONES["utterance"]]


def test_covr_reads_the_authors_list_and_rows_without_answers(tmp_path: Path) -> None:
    row = {"question_id": 1638198, "question": "There is a cat.", "scenes": ["1"], "answer": False}
    hidden = {key: value for key, value in row.items() if key != "answer"}
    dump(tmp_path / "annotations" / "test_paraphrased.json", [row, hidden])
    first, second = open_dataset("covr", tmp_path, "test_paraphrased", pictures=False)
    assert (first.id, first.question, first.gold) == ("1638198", "There is a cat.", ("no",))
    assert second.gold == ()


@pytest.mark.parametrize("place", ["images", "images/train/{directory}", ""])
def test_nlvr2_finds_pictures_flat_or_in_directories(tmp_path: Path, place: str) -> None:
    dump(tmp_path / "data" / "train.json", lines(GLASS | {"identifier": "train-10-2-1", "directory": "37"}))
    for side, color in enumerate(("red", "blue")):
        paint(tmp_path / place.format(directory="37") / f"train-10-2-img{side}.png", color)
    example = only(open_dataset("nlvr2", tmp_path, "train"))
    assert seen(example) == [(255, 0, 0), (0, 0, 255)]
    assert (example.id, example.form, example.gold) == ("train-10-2-1", "set", ("no",))
    assert (example.cluster, example.record["group"]) == ("train-10", "train-10--1")
    assert (example.question, example.groups) == ("There is an empty glass.", {})


def test_nlvr2_subsets_and_hidden_labels(tmp_path: Path) -> None:
    hidden = {key: value for key, value in GLASS.items() if key != "label"}
    dump(tmp_path / "data" / "balanced" / "balanced_dev.json", lines(GLASS, hidden))
    assert [example.gold for example in open_dataset("nlvr2", tmp_path, "balanced_dev", pictures=False)] == [
        ("no",),
        (),
    ]


def drawing(path: Path) -> None:
    """Three boxes in red, green and blue on grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGBA", (400, 100), (128, 128, 128, 255))
    for left, color in ((0, "red"), (150, "lime"), (300, "blue")):
        picture.paste(color, (left, 0, left + 100, 100))
    picture.save(path)


@pytest.mark.parametrize("inside", ["", "nlvr/dev"])
def test_nlvr_cuts_the_boxes_of_every_order(tmp_path: Path, inside: str) -> None:
    dump(tmp_path / inside / "dev.json", lines(BOX | {"directory": "2"}))
    for number in range(6):
        drawing(tmp_path / inside / "images" / "2" / f"dev-3266-0-{number}.png")
    data = list(open_dataset("nlvr", tmp_path, "dev"))
    assert [example.id for example in data] == [f"dev-3266-0-{number}.png" for number in range(6)]
    boxes = [image.load().pixels.getcolors() for image in data[5].images]
    assert boxes == [[(10000, color)] for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    assert (data[0].gold, data[0].form, data[0].cluster, data[0].group) == (("yes",), "set", "3266", "3266")
    assert [example.id for example in open_dataset("nlvr", tmp_path, "dev", permutations=2)] == [
        example.id for example in data[:2]
    ]


def test_nlvr_hidden_names_no_directory(tmp_path: Path) -> None:
    dump(tmp_path / "hidden" / "hidden.json", lines(BOX, BOX | {"identifier": "12-1", "label": "false"}))
    drawing(tmp_path / "hidden" / "images" / "6" / "hidden-3266-0-0.png")
    drawing(tmp_path / "hidden" / "images" / "0" / "hidden-12-1-0.png")
    pack(tmp_path / "hidden", tmp_path / "hidden.zip")
    data = list(open_dataset("nlvr", tmp_path, "hidden", permutations=1))
    assert [example.gold for example in data] == [("yes",), ("no",)]
    assert all(len(seen(example)) == 3 for example in data)


def vqa(folder: Path, prefix: str, *, stemmed: bool = False, scale: int = 1000) -> None:
    """Three questions about two pictures; two annotations in another order."""
    asked = [
        {"image_id": image, "question": f"What is {k}?", "question_id": image * scale + k}
        for image, k in ((42, 0), (42, 1), (458752, 0))
    ]
    annotations = []
    for row in reversed(asked[:2]):
        answers: list[dict[str, Any]] = [{"answer": f"nets {place}", "answer_id": place} for place in range(1, 11)]
        if stemmed:
            answers = [answer | {"raw_answer": answer["answer"], "answer": "net"} for answer in answers]
        annotations.append({"question_id": row["question_id"], "image_id": row["image_id"], "answers": answers})
    annotations[0] |= {"question_type": "what is", "answer_type": "other", "multiple_choice_answer": "net"}
    dump(folder / f"{prefix}OpenEnded_mscoco_val2014_questions.json", {"info": {}, "questions": asked})
    dump(folder / f"{prefix}mscoco_val2014_annotations.json", {"info": {}, "annotations": annotations})
    for number in (42, 458752):
        paint(folder / "val2014" / f"COCO_val2014_{number:012d}.jpg")


def test_vqav2_joins_questions_and_annotations(tmp_path: Path) -> None:
    vqa(tmp_path, "v2_")
    data = open_dataset("vqav2", tmp_path, "val")
    first, second, third = data
    assert (data.split, data.prompts, data.notes, len(data.sources)) == ("val2014", "vqav2", (), 2)
    assert [example.id for example in data] == ["42000", "42001", "458752000"]
    assert second.gold == tuple(f"nets {place}" for place in range(1, 11))
    assert second.groups == {"question_type": "what is", "answer_type": "other"}
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
    assert [len(example.gold) for example in data] == [10, 10, 0]
    assert all(len(seen(example)) == 1 for example in data)
    (tmp_path / "mscoco_val2014_annotations.zip").unlink()
    data = open_dataset("vqav2", tmp_path, "val2014")
    assert [example.gold for example in data] == [(), (), ()]
    assert "v2_mscoco_val2014_annotations.json" in only(data.notes)


def test_vqav2_test_splits_and_lists(tmp_path: Path) -> None:
    asked = [{"image_id": 1, "question": "What?", "question_id": 1000}]
    dump(tmp_path / "v2_OpenEnded_mscoco_test-dev2015_questions.json", {"questions": asked})
    with pytest.raises(SetupError, match=r"looked for COCO_test2015_000000000001\.jpg"):
        open_dataset("vqav2", tmp_path, "test-dev")
    paint(tmp_path / "test2015" / "COCO_test2015_000000000001.jpg")
    data = open_dataset("vqav2", tmp_path, "test-dev")
    assert (only(data).gold, data.notes) == ((), ())
    image = "train2014/COCO_train2014_000000203166.jpg"
    row = {"question_id": 203166006, "question": "Pelicans?", "image": image, "dataset": "vqa", "answer": ["no", "no"]}
    dump(tmp_path / "annotations" / "vqa_val4000.json", [row])
    for split in ("val4000", "vqa_val4000"):
        example = only(open_dataset("vqav2", tmp_path, split, pictures=False))
        assert (example.id, example.gold, example.cluster) == ("203166006", ("no", "no"), "203166")


def test_okvqa_keeps_raw_and_stemmed_answers(tmp_path: Path) -> None:
    vqa(tmp_path, "", stemmed=True, scale=10)
    data = open_dataset("ok-vqa", tmp_path, "test")
    first = next(iter(data))
    assert (data.prompts, first.gold[:2], len(first.gold)) == ("okvqa", ("nets 1", "nets 2"), 10)
    assert first.record["answers"][0] == {"raw_answer": "nets 1", "answer": "net"}


def test_vqa_files_of_other_data_sets_are_refused(tmp_path: Path) -> None:
    vqa(tmp_path, "", stemmed=True, scale=10)
    with pytest.raises(SetupError, match="looked for v2_OpenEnded"):
        open_dataset("vqav2", tmp_path, "val")
    vqa(tmp_path, "v2_", stemmed=True)
    with pytest.raises(InputError, match="OK-VQA"):
        open_dataset("vqav2", tmp_path, "val")
