"""Lists of pictures that other tools write are read, or refused in one line; tables of answers go to Label Studio."""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from codevqa.collections.picture_lists import is_table, read_picture_list
from codevqa.collections.table_exports import ColumnType, label_studio_config, label_studio_tasks
from codevqa.core import input_files
from codevqa.core.errors import InputError


def save(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else str(content).encode())
    return path


def coco(*files: str, **tables: Any) -> str:
    images = [{"id": number, "file_name": file} for number, file in enumerate(files)]
    kinds = [{"id": 7, "name": "dog"}, {"id": 9, "name": "traffic light"}]
    marks = [{"image_id": 0, "category_id": 7}, {"image_id": 0, "category_id": 7}, {"image_id": 99, "category_id": 9}]
    return json.dumps({"images": images, "categories": kinds, "annotations": marks, **tables})


def test_names_of_lists() -> None:
    assert is_table("a.csv") and is_table("b.JSONL") and is_table(Path("c/instances.json"))
    assert not is_table("csv") and not is_table("a.csv.png") and not is_table(Path("a.json/b.jpg"))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_csv_of_any_delimiter(tmp_path: Path, mark: str, encoding: str) -> None:
    rows = [["Weight", "FilePath", "animal_truth", "LABEL"], ["3", "a/ä 1.png", "dog", "x"], [], ["", "", "", ""]]
    rows += [["4", "/b.png", " ", ""], ["5", "./a/ä 1.png", "dog", ""]]
    path = save(tmp_path / "list.CSV", "\r\n".join(mark.join(row) for row in rows).encode(encoding))
    listed = read_picture_list(path)
    first = str(tmp_path / "a" / "ä 1.png")
    assert listed.paths == (first, "/b.png")
    assert listed.labels == {first: {"animal": "dog", "label": "x"}, "/b.png": {}}


def test_the_first_of_several_path_columns_is_read_and_cells_may_hold_the_delimiter(tmp_path: Path) -> None:
    text = 'image,file,note\nno.png,"a,\n1.png","x, y"\nno.png,b.png,\n'
    paths = read_picture_list(save(tmp_path / "list.csv", text)).paths
    assert paths == (str(tmp_path / "a,\n1.png"), str(tmp_path / "b.png"))


def test_relative_lists_give_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "in" / "list.csv", "path\na.png\n")
    monkeypatch.chdir(tmp_path)
    assert read_picture_list(Path("in/list.csv")).paths == (str(tmp_path / "in" / "a.png"),)


def test_imagefolder_metadata(tmp_path: Path) -> None:
    rows = [
        {"file_name": "a.png", "label": 3, "indoor": True, "animal_truth": "dog", "text": "x" * 41, "boxes": [1]},
        {"animal": "cat", "file_name": "b.png", "none": None},
    ]
    path = save(tmp_path / "metadata.jsonl", "\n\n".join(map(json.dumps, rows)))
    listed = read_picture_list(path)
    assert [Path(name).name for name in listed.paths] == ["a.png", "b.png"]
    assert list(listed.labels.values()) == [{"label": "3", "indoor": "yes", "animal": "dog"}, {"animal": "cat"}]


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("instances.json", "."),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/person_keypoints_val2017.json", "val2017"),
        ("annotations/instances_val2017.json", "images"),
        ("annotations/instances_val2017.json", "images/val2017"),
        ("annotations/instances_val2017.json", "."),
        ("train.json", "train"),
    ],
)
def test_coco_counts_and_pictures_where_they_usually_are(tmp_path: Path, file: str, place: str) -> None:
    save(tmp_path / place / "1.jpg", b"")
    listed = read_picture_list(save(tmp_path / file, coco("1.jpg", "2.jpg")))
    first, second = (str(tmp_path / place / name) for name in ("1.jpg", "2.jpg"))
    assert listed.paths == (first, second)
    assert listed.labels == {
        first: {"dog": "2", "traffic light": "0"},
        second: {"dog": "0", "traffic light": "0"},
    }


def test_coco_without_annotations_has_no_truth(tmp_path: Path) -> None:
    save(tmp_path / "1.jpg", b"")
    text = json.dumps({"images": [{"id": 1, "file_name": "1.jpg"}], "categories": []})
    assert read_picture_list(save(tmp_path / "info.json", text)).labels == {str(tmp_path / "1.jpg"): {}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "name,size\na.png,3\n", "a.csv has no column of paths. Name it as one of filepath, path,"),
        ("a.csv", "", "a.csv has no column of paths."),
        ("a.csv", "path,label\n\n", "a.csv lists no pictures."),
        ("a.csv", "path,label\na.png,x\n ,y\n", "a.csv, line 3 names no picture. Fill in 'path'."),
        ("a.csv", 'path,label\n"a\n.png",x\nb.png,y,z\n', "a.csv, line 4 has 3 cells, and the header 2."),
        ("a.csv", 'path,label\na.png,x\n"b.png,y\n', "a.csv, line 3: not CSV: unexpected end of data."),
        ("a.csv", "path,a_truth\na.png,x\na.png,y\n", "line 3: 'a' of a.png is 'y' here and 'x' above."),
        ("a.csv", "path,a_truth,a_truth\na.png,x,y\n", "a.csv has 'a_truth' twice. Keep one of them."),
        ("a.csv", "path,label,truth\na.png,x,y\n", "a.csv has 'label' twice."),
        ("a.jsonl", '{"path": "a.png", "path": "b.png"}', "a.jsonl, line 1 has 'path' twice."),
        ("a.jsonl", '{"path": "a.png", "a": 1, "a_truth": 2}', "a.jsonl, line 1 has 'a' twice."),
        ("a.json", coco("here.jpg", categories=[{"id": True, "name": "x"}]), "entry 1 of 'categories' lacks 'id'"),
        ("a.csv", "x" * 200_000, "a.csv, line 1: not CSV: field larger than"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\xff", "a.csv is not a text file in UTF-8"),
        ("a.jsonl", '{"file_name": "a.png"}\n[]', "a.jsonl, line 2 is not an object."),
        ("a.jsonl", '\n{"name": "a.png"}', "a.jsonl, line 2 names no picture."),
        ("a.jsonl", '{"file_name": ["a.png"]}', "a.jsonl, line 1 names no picture."),
        ("a.jsonl", '{"file_name": "a.png"}\n{', "a.jsonl, line 2: not JSON"),
        ("a.jsonl", "", "a.jsonl lists no pictures."),
        ("a.json", "{", "a.json, line 1: not JSON"),
        ("a.json", '["a.png"]', "a.json is not as COCO's instances.json: it has no list 'images'."),
        ("a.json", '{"images": []}', "a.json lists no pictures."),
        ("a.json", coco("1.jpg"), "No picture 1.jpg of"),
        ("a.json", coco("x" * 5000), "No picture xxx"),
        ("a.json", '{"images": [{"id": 1, "file_name": ""}]}', "entry 1 of 'images' lacks 'id' or 'file_name'."),
        ("a.json", '{"images": [3]}', "entry 1 of 'images' lacks 'id' or 'file_name'."),
        ("a.json", coco("here.jpg", categories=None), "it has no list 'categories'"),
        ("a.json", coco("here.jpg", categories=[]), "it has no category 7, which an annotation names."),
        ("a.json", coco("here.jpg", images=[{"id": 1, "file_name": "here.jpg"}] * 2), "two images have the same id"),
        (
            "a.json",
            coco("here.jpg", annotations=[{"image_id": [], "category_id": 7}]),
            "entry 1 of 'annotations' lacks",
        ),
        ("a.txt", "a.png", "a.txt is not a list of pictures. Give a .csv"),
        ("gone.csv", None, "gone.csv. Check the path."),
    ],
)
def test_what_is_wrong_in_a_list_is_told(tmp_path: Path, name: str, content: Any, message: str) -> None:
    save(tmp_path / "here.jpg", b"")
    if content is not None:
        save(tmp_path / name, content)
    with pytest.raises(InputError) as raised:
        read_picture_list(tmp_path / name)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_pipes_and_large_lists_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="is not a regular file"):
        read_picture_list(tmp_path / "pipe.csv")
    monkeypatch.setattr(input_files, "LARGEST", 10)
    with pytest.raises(InputError, match="has more than"):
        read_picture_list(save(tmp_path / "a.csv", "path\nlong name.png"))


COLUMNS: dict[str, ColumnType] = {"any dogs?": "yes_no", "dogs": "number", "any dogs!": "choice", "note": "open"}
COLORS = {"any dogs!": ["red & blue", "green"]}


def test_tasks_of_label_studio_fit_their_configuration() -> None:
    cells = {"any dogs?": ("yes", 0.9), "dogs": ("2", 0.5), "any dogs!": ("green", None), "note": ("two dogs", None)}
    rows = [{"picture": "/data/a b.jpg", "cells": cells}]
    (task,) = label_studio_tasks(rows, COLUMNS, "mini", choices=COLORS)
    assert task["data"] == {"image": "/data/local-files/?d=data/a%20b.jpg"}
    ids = [
        item["id"]
        for task in label_studio_tasks([*rows, *rows], COLUMNS, "mini")
        for item in task["predictions"][0]["result"]
    ]
    assert len(set(ids)) == 8
    (prediction,) = task["predictions"]
    assert (prediction["model_version"], prediction["score"]) == ("mini", 0.5)
    view = ElementTree.fromstring(label_studio_config(COLUMNS, COLORS))
    (picture,) = view.findall("Image")
    assert picture.attrib == {"name": "image", "value": "$image"}
    tags = {"choices": "Choices", "number": "Number", "textarea": "TextArea"}
    controls = {tag.get("name"): tag for tag in view.iter() if tag.get("toName") == "image"}
    assert len(controls) == len(prediction["result"]) == 4
    for item in prediction["result"]:
        assert controls[item["from_name"]].tag == tags[item["type"]] and item["to_name"] == "image"
    values = [(item["type"], item["value"], item.get("score")) for item in prediction["result"]]
    assert values == [
        ("choices", {"choices": ["yes"]}, 0.9),
        ("number", {"number": 2}, 0.5),
        ("choices", {"choices": ["green"]}, None),
        ("textarea", {"text": ["two dogs"]}, None),
    ]
    offered = [[choice.get("value") for choice in tag] for tag in view.findall("Choices")]
    assert offered == [["yes", "no"], ["red & blue", "green"]]
    assert [tag.get("value") for tag in view.findall("Header")] == list(COLUMNS)


def test_what_a_control_cannot_show_is_left_out() -> None:
    cells = {"any dogs?": ("unknown", 0.9), "dogs": ("many", 0.5), "any dogs!": ("pink", 0.4), "note": ("", 0.1)}
    (task,) = label_studio_tasks([{"picture": "/a.jpg", "cells": cells}], COLUMNS, "mini", choices=COLORS)
    assert task["predictions"] == [{"model_version": "mini", "result": []}]
    numbers = {value: ("dogs", (value, None)) for value in ("2.0", "2.5", "nan", "inf")}
    rows = [{"picture": "/a.jpg", "cells": {column: cell}} for column, cell in numbers.values()]
    tasks = label_studio_tasks(rows, {"dogs": "number"}, "mini")
    shown = [[item["value"] for item in task["predictions"][0]["result"]] for task in tasks]
    assert json.dumps(shown) == '[[{"number": 2}], [{"number": 2.5}], [], []]'


def test_counts_of_many_images_of_many_categories_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "0.jpg", b"")
    kinds = [{"id": number, "name": str(number)} for number in range(8000)]
    text = coco(*(f"{number}.jpg" for number in range(8000)), categories=kinds, annotations=[])
    with pytest.raises(InputError, match="has 8,000 images of 8,000 categories"):
        read_picture_list(save(tmp_path / "a.json", text))
