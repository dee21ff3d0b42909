"""What is missing from data sets, damaged or of another kind is said in one line; millions of records stream."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from data_files import BOX, GLASS, PHONES, SUIT, dump, lines, only, paint

from codevqa.core.errors import ImageError, InputError, SetupError, UnknownNameError
from codevqa.core.images import load_picture
from codevqa.eval.datasets import NAMES, open_dataset, splits
from codevqa.eval.datasets.files import Located
from codevqa.eval.datasets.json_stream import CHUNK, stream_records


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_split_is_named_with_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(SetupError) as caught:
        open_dataset(name, tmp_path, splits(name)[0])
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path) in message
    assert "https://" in message
    assert splits(name)[0] in message
    assert "none of the splits" not in message
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


def test_a_few_missing_pictures_are_not_the_data_sets(tmp_path: Path) -> None:
    dump(tmp_path / "questions" / "val_all_questions.json", {"1": SUIT, "2": SUIT | {"imageId": "n5"}})
    paint(tmp_path / "images" / "n5.jpg")
    assert len(list(open_dataset("gqa", tmp_path, "val_all"))) == 2


@pytest.mark.parametrize(
    ("name", "file", "content"),
    [
        ("gqa", "questions/val_all_questions.json", {"1": {"question": "What?"}}),
        ("gqa", "questions/val_all_questions.json", {"1": [SUIT]}),
        ("gqa", "questions/val_all_questions.json", {}),
        ("covr", "val_all.jsonl", lines({"utterance": "What?", "answer": 1})),
        ("covr", "val_all.jsonl", lines(PHONES | {"scenes": []})),
        ("covr", "val_all.jsonl", lines(PHONES | {"answer": [1]})),
        ("nlvr2", "val_all.json", lines(BOX)),
        ("nlvr2", "val_all.json", lines(GLASS | {"label": 0})),
        ("nlvr", "val_all.json", lines(GLASS)),
        ("vqav2", "val_all_questions.json", {"annotations": []}),
        ("vqav2", "val_all_questions.json", {"questions": [{"question": "What?"}]}),
        ("vqav2", "OpenEnded_mscoco_val_all_questions.json", {"questions": [{"question": "What?"}]}),
        ("okvqa", "val_all.json", "[1, 2]"),
    ],
)
def test_files_of_another_kind_are_refused_in_one_line(tmp_path: Path, name: str, file: str, content: Any) -> None:
    dump(tmp_path / file, content)
    with pytest.raises(InputError) as caught:
        list(open_dataset(name, tmp_path, "val_all", pictures=False))
    assert "\n" not in str(caught.value)
    assert "val_all" in str(caught.value)


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


# Reading along


RECORDS = [
    {"id": place, "text": 'a \u00e9 } ] \\" , ' * (place % 7), "deep": {"list": [1, -2.5e3, None]}}
    for place in range(40)
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("window", [1, 7, 64, CHUNK])
def test_every_layout_reads_alike_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None, window: int
) -> None:
    monkeypatch.setattr("codevqa.eval.datasets.json_stream.CHUNK", window)
    path = tmp_path / "file.json"
    wrapped = {"info": {"questions": [1]}, "questions": RECORDS, "count": 12345}
    for content, within in (
        (json.dumps(RECORDS, indent=indent), ""),
        (json.dumps(wrapped, indent=indent, ensure_ascii=False), "questions"),
        ("\n".join(json.dumps(record, indent=indent) for record in RECORDS), ""),
        ("\ufeff" + json.dumps(RECORDS) + "\r\n\n", "questions"),
    ):
        path.write_text(content, encoding="utf-8")
        assert [row for _, row in stream_records(Located(path), within=within)] == RECORDS
    keyed = {f"0{place}": record for place, record in enumerate(RECORDS)}
    path.write_text(json.dumps(keyed, indent=indent))
    assert list(stream_records(Located(path), keyed=True)) == list(keyed.items())
    with zipfile.ZipFile(tmp_path / "file.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.write(path, "in/file.json")
    assert list(stream_records(Located(tmp_path / "file.zip", "in/file.json"), keyed=True)) == list(keyed.items())


@pytest.mark.parametrize(
    ("content", "how", "why"),
    [
        ('{"1": {"a": 1}, "2": {"a": ', {"keyed": True}, "near character 21: "),
        ('{"1": {"a": 1}', {"keyed": True}, "it ends early"),
        ('{"1": {"a": 1}} {', {"keyed": True}, "goes on after its end"),
        ('{1: {"a": 1}}', {"keyed": True}, "a key was expected"),
        ('{"1" {"a": 1}}', {"keyed": True}, "':' was expected"),
        ('[{"a": 1} {"a": 2}]', {}, "',' or ']' was expected"),
        ('[{"a": 1}, ', {}, "it ends early"),
        ('[{"a": 1}, 3]', {}, "record 2 is not an object"),
        ('{"answers": []}', {"within": "questions"}, "no list 'questions'"),
        ('{"questions": 3}', {"within": "questions"}, r"'\[' was expected"),
        ('{"a": 1}\n<html>', {}, "expecting value"),
        ("[" * 100_000, {}, "nested too deeply|it is not|not an object"),
        (b'[{"a": "\xff\xfe"}]', {}, "utf-8"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, content: Any, how: dict[str, Any], why: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=why) as caught:
        list(stream_records(Located(path), **how))
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.zip"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("file.json", json.dumps(RECORDS))
    content = bytearray(path.read_bytes())
    content[600] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="CRC"):
        list(stream_records(Located(path, "file.json")))
    with pytest.raises(SetupError, match="Cannot open"):
        list(stream_records(Located(path, "none.json")))


def test_a_record_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codevqa.eval.datasets.json_stream.LARGEST", 10_000)
    monkeypatch.setattr("codevqa.eval.datasets.json_stream.CHUNK", 1_000)
    path = tmp_path / "file.json"
    path.write_text('[{"a": "' + "b" * 100_000)
    with pytest.raises(InputError, match="does not end"):
        list(stream_records(Located(path)))


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    asked = [{"image_id": place, "question": "What?", "question_id": place * 1000} for place in range(2_000)]
    told = [one | {"answers": [{"answer": "red", "answer_id": k} for k in range(10)]} for one in asked]
    dump(tmp_path / "v2_OpenEnded_mscoco_val2014_questions.json", {"questions": asked})
    dump(tmp_path / "v2_mscoco_val2014_annotations.json", {"annotations": told})
    data = open_dataset("vqav2", tmp_path, "val", pictures=False)
    tracemalloc.start()
    try:
        assert sum(len(one.gold) for one in data) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 4_500_000  # all at once it is 6.3 MB
    finally:
        tracemalloc.stop()
