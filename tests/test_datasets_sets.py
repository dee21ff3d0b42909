"""COVR, NLVR2 and NLVR in the layouts that users have, and the real dev files of the last two."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from data_files import BOX, GLASS, PHONES, dump, lines, only, pack, paint, seen
from PIL import Image

from codevqa.core.images import load_picture
from codevqa.eval.datasets import open_dataset
from codevqa.eval.task import PictureFile
from codevqa.miniworld.export import write as write_mini

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not SHARED.is_dir(), reason="the real NLVR and NLVR2 files are not beside the checkout")


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "mini"
    write_mini(out, images=12, splits=("val", "test_combinations"))
    return out


def test_covr_finds_pictures_of_all_three_sources(tmp_path: Path) -> None:
    scenes = ["7", "8", "test1-0-1-img0", "ice_skating_12"]
    dump(tmp_path / "val.jsonl", lines(PHONES | {"scenes": scenes}))
    names = ("VG_100K/7.jpg", "VG_100K_2/8.jpg", "test1-0-1-img0.png", "of500_images/ice_skating/ice_skating_12.jpg")
    for name, color in zip(names, ("red", "lime", "blue", "white"), strict=True):
        paint(tmp_path / "images" / name, color)
    example = only(open_dataset("covr", tmp_path, "val"))
    assert [image.path for image in example.images if isinstance(image, PictureFile)] == [
        tmp_path / "images" / name for name in names
    ]
    assert [max(range(3), key=pixel.__getitem__) for pixel in seen(example)[:3]] == [0, 1, 2]
    assert (example.id, example.form, example.gold) == ("val_test_747468", "set", ("yes",))
    assert example.groups == {"images": "4", "pattern": "quantifier_same_attr"}
    assert example.record["properties"] == PHONES["properties"]


def test_covr_in_the_folder_its_archive_unpacks_to(tmp_path: Path) -> None:
    dump(tmp_path / "COVR-v1_0" / "val.jsonl", lines(PHONES))
    paint(tmp_path / "COVR-v1_0" / "images" / "VG_100K" / "7.jpg")
    assert [image.name for image in only(open_dataset("covr", tmp_path, "val")).images] == ["8.jpg", "7.jpg"]


def test_covr_clusters_by_the_set_whatever_its_order(tmp_path: Path) -> None:
    dump(tmp_path / "val.jsonl", lines(PHONES, PHONES | {"scenes": ["7", "8"]}, PHONES | {"scenes": ["7"]}))
    first, second, third = open_dataset("covr", tmp_path, "val", pictures=False)
    assert first.cluster == second.cluster != third.cluster


@pytest.mark.parametrize(("answer", "gold"), [(True, "yes"), (False, "no"), (0, "0"), (3, "3"), ("red", "red")])
def test_covr_answers_become_text(tmp_path: Path, answer: object, gold: str) -> None:
    dump(tmp_path / "val.jsonl", lines(PHONES | {"answer": answer}))
    assert only(open_dataset("covr", tmp_path, "val", pictures=False)).gold == (gold,)


def test_covr_paraphrases(tmp_path: Path) -> None:
    rows = [PHONES | {"paraphrased": "Same?"}, PHONES | {"rephrase": "Alike?"}, PHONES | {"paraphrased": None}]
    dump(tmp_path / "test.jsonl", lines(*rows))
    template = PHONES["utterance"]
    for split, wanted, asked in (
        ("test", None, ["Same?", "Alike?", template]),
        ("test_paraphrased", None, ["Same?", "Alike?", template]),
        ("test", False, [template] * 3),
    ):
        data = open_dataset("covr", tmp_path, split, pictures=False, paraphrased=wanted)
        assert [one.question for one in data] == asked


def test_covr_reads_the_authors_list_and_rows_without_answers(tmp_path: Path) -> None:
    row = {"question_id": 1638198, "question": "There is a cat.", "scenes": ["1"], "answer": False}
    hidden = {key: value for key, value in row.items() if key != "answer"}
    dump(tmp_path / "annotations" / "test_paraphrased.json", [row, hidden])
    first, second = open_dataset("covr", tmp_path, "test_paraphrased", pictures=False)
    assert (first.id, first.question, first.gold) == ("1638198", "There is a cat.", ("no",))
    assert second.gold == ()
    assert first.record["statement"] is True


def test_mini_covr(mini: Path) -> None:
    data = list(open_dataset("covr", mini, "val"))
    rows = [json.loads(line) for line in (mini / "covr/val.jsonl").read_text().splitlines()]
    assert [one.question for one in data] == [row["paraphrased"] for row in rows]
    assert [one.groups["images"] for one in data] == [str(len(row["scenes"])) for row in rows]
    assert all(len(one.images) == len(seen(one)) == int(one.groups["images"]) for one in data)
    assert {one.gold for one in data} >= {("yes",), ("no",)}


# NLVR2


@pytest.mark.parametrize("place", ["images", "images/{directory}", "images/train/{directory}", "train/{directory}", ""])
def test_nlvr2_finds_pictures_flat_or_in_directories(tmp_path: Path, place: str) -> None:
    dump(tmp_path / "data" / "train.json", lines(GLASS | {"identifier": "train-10-2-1", "directory": "37"}))
    for side, color in enumerate(("red", "blue")):
        paint(tmp_path / place.format(directory="37") / f"train-10-2-img{side}.png", color)
    example = only(open_dataset("nlvr2", tmp_path, "train"))
    assert seen(example) == [(255, 0, 0), (0, 0, 255)]
    assert (example.id, example.form, example.gold) == ("train-10-2-1", "set", ("no",))
    assert (example.cluster, example.record["group"]) == ("train-10", "train-10--1")
    assert (example.question, example.groups) == ("There is an empty glass.", {})


def test_nlvr2_subsets_lists_and_hidden_labels(tmp_path: Path) -> None:
    hidden = {key: value for key, value in GLASS.items() if key != "label"}
    dump(tmp_path / "data" / "balanced" / "balanced_dev.json", lines(GLASS, hidden))
    paint(tmp_path / "images" / "test1" / "test1-0-1-img0.png")
    paint(tmp_path / "images" / "test1" / "test1-0-1-img1.png")
    assert [one.gold for one in open_dataset("nlvr2", tmp_path, "balanced_dev")] == [("no",), ()]
    row = {"question_id": 3, "question": "A glass.", "scenes": ["test1-0-1-img0", "test1-0-1-img1"], "answer": True}
    dump(tmp_path / "annotations" / "sample.json", [row])
    example = only(open_dataset("nlvr2", tmp_path, "sample"))
    assert (example.id, example.gold, example.cluster, len(seen(example))) == ("3", ("yes",), "test1-0", 2)
    assert example.record["group"].startswith("test1-0--")
    lavis = {"sentence": "A glass.", "label": "True", "images": [f"test1/test1-0-1-img{side}.png" for side in (0, 1)]}
    dump(tmp_path / "annotations" / "nlvr_dev.json", [lavis])
    example = only(open_dataset("nlvr2", tmp_path, "dev"))
    assert (example.gold, example.cluster, len(seen(example))) == (("yes",), "test1-0", 2)
    far = lavis | {"images": [f"test1/test1-0-3-img{side}.png" for side in (0, 1)]}
    dump(tmp_path / "annotations" / "nlvr_dev.json", [lavis, far, lavis | {"sentence": "Another."}])
    groups = [one.record["group"] for one in open_dataset("nlvr2", tmp_path, "dev")]
    assert groups[0] == groups[1] != groups[2]
    assert len({one.id for one in open_dataset("nlvr2", tmp_path, "dev")}) == 3


def test_nlvr2_pairs_under_names_of_one_s_own_stay_apart(tmp_path: Path) -> None:
    pairs = [["a.png", "b.png"], ["c.png", "d.png"], ["a.png", "d.png"], ["x/a.png", "x/b.png"]]
    for name in {name for pair in pairs for name in pair}:
        paint(tmp_path / "images" / name)
    rows = [{"sentence": "A glass.", "label": "True", "images": pair} for pair in pairs]
    dump(tmp_path / "annotations" / "nlvr_dev.json", [*rows, rows[0] | {"sentence": "Two."}])
    data = list(open_dataset("nlvr2", tmp_path, "dev"))
    assert len({one.id for one in data}) == 5 and len({one.cluster for one in data}) == 4
    assert data[0].cluster == data[4].cluster and not any(one.group for one in data)


def test_mini_nlvr2(mini: Path) -> None:
    data = list(open_dataset("nlvr2", mini, "dev"))
    assert len(data) == 12
    assert Counter(one.gold for one in data) == {("yes",): 6, ("no",): 6}
    assert set(Counter(one.record["group"] for one in data).values()) == {4}
    assert len({one.cluster for one in data}) == 3
    assert all(len(seen(one)) == 2 for one in data)


@needs_data
def test_nlvr2_dev() -> None:
    data = list(open_dataset("nlvr2", SHARED, "dev", pictures=False))
    assert len(data) == 6982
    assert Counter(one.gold for one in data) == {("yes",): 3551, ("no",): 3431}
    assert len({one.cluster for one in data}) == 1054  # sets
    right: dict[str, bool] = {}
    for one in data:
        right[one.record["group"]] = right.get(one.record["group"], True) and one.gold == ("yes",)
    assert len(right) == 2018
    assert sum(right.values()) / len(right) == 0.03865213082259663


# NLVR


def drawing(path: Path) -> None:
    """Three boxes in red, green and blue on grey."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGBA", (400, 100), (128, 128, 128, 255))
    for left, color in ((0, "red"), (150, "lime"), (300, "blue")):
        picture.paste(color, (left, 0, left + 100, 100))
    picture.save(path)


@pytest.mark.parametrize("inside", ["", "dev", "nlvr/dev"])
def test_nlvr_cuts_the_boxes_of_every_order(tmp_path: Path, inside: str) -> None:
    dump(tmp_path / inside / "dev.json", lines(BOX | {"directory": "2"}))
    for number in range(6):
        drawing(tmp_path / inside / "images" / "2" / f"dev-3266-0-{number}.png")
    data = list(open_dataset("nlvr", tmp_path, "dev"))
    assert [one.id for one in data] == [f"dev-3266-0-{number}.png" for number in range(6)]
    for one in data:
        boxes = [load_picture(image.load()).pixels for image in one.images]
        assert [box.getcolors() for box in boxes] == [
            [(10000, color)] for color in ((255, 0, 0), (0, 255, 0), (0, 0, 255))
        ]
        assert (one.gold, one.form, one.cluster, one.record["group"]) == (("yes",), "set", "3266", "3266")
        assert one.record["identifier"] == "3266-0"
    assert [one.id for one in open_dataset("nlvr", tmp_path, "dev", permutations=2)] == [one.id for one in data[:2]]


@pytest.mark.parametrize("packed", [False, True])
def test_nlvr_hidden_names_no_directory(tmp_path: Path, packed: bool) -> None:
    other = BOX | {"identifier": "12-1", "label": "false"}
    dump(tmp_path / "hidden" / "hidden.json", lines(BOX, other))
    for number in range(6):
        drawing(tmp_path / "hidden" / "images" / "6" / f"hidden-3266-0-{number}.png")
        drawing(tmp_path / "hidden" / "images" / "0" / f"hidden-12-1-{number}.png")
    if packed:
        pack(tmp_path / "hidden", tmp_path / "hidden.zip")
    data = list(open_dataset("nlvr", tmp_path, "hidden", permutations=1))
    assert [one.gold for one in data] == [("yes",), ("no",)]
    assert all(len(seen(one)) == 3 for one in data)


@needs_data
def test_nlvr_dev() -> None:
    data = list(open_dataset("nlvr", SHARED, "dev"))
    assert len(data) == len({one.id for one in data}) == 5934
    assert Counter(one.gold for one in data) == {("yes",): 547 * 6, ("no",): 442 * 6}
    pictures = {image.path for one in data for image in one.images if isinstance(image, PictureFile)}
    assert len(pictures) == 5934
    assert all(path.is_file() for path in pictures)
    assert len(list(open_dataset("nlvr", SHARED / "nlvr" / "dev", "dev", permutations=1))) == 989
    right: dict[str, bool] = {}
    for one in data:
        right[one.cluster] = right.get(one.cluster, True) and one.gold == ("yes",)
    assert sum(right.values()) / len(right) == 0.06367041198501873
    assert [load_picture(image.load()).pixels.size for image in data[0].images] == [(100, 100)] * 3
