"""What is missing from data sets, damaged or of another kind is said in one line."""

import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import GLASS, PHONES, SUIT, dump, lines, only, paint

from codevqa.core.errors import ImageError, InputError, SetupError, UnknownNameError
from codevqa.core.images import load_picture
from codevqa.eval.datasets import NAMES, open_dataset, splits
from codevqa.eval.datasets.files import Located
from codevqa.eval.datasets.json_stream import stream_records


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_split_is_named_with_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_dataset(name, tmp_path, splits(name)[0])
    said = str(caught.value)
    assert "\n" not in said and str(tmp_path) in said and splits(name)[0] in said
    assert ("mini-data" if name == "collections" else "https://") in said
    with pytest.raises(SetupError, match=f"'nosplit' is none of the splits {splits(name)[0]}"):
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
        load_picture(only(example.images).load())
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


# JSON


def test_a_file_that_would_fill_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.eval.datasets.json_stream.LARGEST", 10_000)
    with zipfile.ZipFile(tmp_path / "file.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("file.json", '[{"a": "' + "b" * 100_000)
    with pytest.raises(InputError, match="more than 10,000 characters"):
        list(stream_records(Located(tmp_path / "file.zip", "file.json")))
