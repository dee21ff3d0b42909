"""Prompt sets: loading, and the paper release's layouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from prompt_kit import PACKAGE, gqa_in

from codevqa.core.errors import InputError, UnknownNameError
from codevqa.prompts import Example, available, load, load_examples, load_reading

# -- the sets of the package -----------------------------------------------------------------------------------------


def test_gqa_has_the_papers_numbers() -> None:
    gqa = load("gqa")
    assert (gqa.form, gqa.shots, gqa.captions, gqa.caption_draws) == ("image", 12, 7, 100)
    assert len(gqa.examples) == 83
    assert gqa.primitives == ("open_image", "query", "get_pos")
    assert {example.form for example in gqa.examples} == {"image"}
    assert len(gqa.reading) == 48
    assert {len(captions) for example in gqa.reading for captions in example.by_image} == {7}
    # The kinds of question the method gains on are all there.
    programs = [example.program for example in gqa.examples]
    assert sum("get_pos" in program for program in programs) >= 12
    assert sum(" and " in program for program in programs) >= 4
    assert sum(" or " in program for program in programs) >= 3


# -- loading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return gqa_in(tmp_path)


def test_a_folder_loads_like_a_name(folder: Path) -> None:
    assert load(folder) == load("gqa") == load(str(folder))


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownNameError) as caught:
        load("nope")
    assert "'nope'" in str(caught.value) and ", ".join(available()) in str(caught.value)
    with pytest.raises(UnknownNameError):
        load("")


@pytest.mark.parametrize(
    ("file", "line", "broken", "says"),
    [
        ("examples.jsonl", 2, '{"id": "x", "question": ', "examples.jsonl, line 2: not JSON"),
        ("examples.jsonl", 3, '["x"]', "examples.jsonl, line 3: expected a JSON object, found list"),
        ("examples.jsonl", 1, '{"id": "x", "question": "Why?"}', "examples.jsonl, line 1: program is missing"),
        (
            "examples.jsonl",
            1,
            '{"id": "x", "question": " ", "program": "p"}',
            "line 1: question: String should match pattern",
        ),
        ("examples.jsonl", 1, '{"id": "x", "question": "q", "programme": "p"}', "line 1: unknown key 'programme'"),
        (
            "examples.jsonl",
            4,
            '{"id": "x", "question": "q", "program": "p", "form": "images"}',
            "line 4: form: Input should be 'image' or 'set', not 'images'",
        ),
        (
            "reading.jsonl",
            2,
            '{"id": "x", "question": "q", "captions": [], "answer": "a"}',
            "line 2: captions: ",
        ),
        (
            "reading.jsonl",
            2,
            '{"id": "x", "question": "q", "captions": [1], "answer": "a"}',
            "line 2: captions: ",
        ),
        (
            "reading.jsonl",
            2,
            '{"id": "x", "question": "q", "captions": [["a"], [2]], "answer": "a"}',
            "line 2: captions: ",
        ),
        ("prompt.json", 4, '  "shots": "12",', "prompt.json: shots: Input should be a valid integer, not '12'"),
        ("prompt.json", 4, '  "shots": 12', "prompt.json, line 5: not JSON"),
        ("prompt.json", 3, '  "form": "video",', "prompt.json: form: Input should be 'image' or 'set', not 'video'"),
        ("preamble.txt", 10, "{apis}", "preamble.txt: {api} must stand in it once, found 0 times"),
    ],
)
def test_malformed_files_say_where(folder: Path, file: str, line: int, broken: str, says: str) -> None:
    lines = (folder / file).read_text().split("\n")
    if file == "preamble.txt":
        line = lines.index("{api}") + 1
    lines[line - 1] = broken
    (folder / file).write_text("\n".join(lines))
    with pytest.raises(InputError) as caught:
        load(folder)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["prompt.json", "preamble.txt", "examples.jsonl", "reading.jsonl"])
def test_missing_files_are_named(folder: Path, file: str) -> None:
    (folder / file).unlink()
    with pytest.raises(InputError, match=file):
        load(folder)


def test_line_separators_inside_a_question_end_no_line(folder: Path) -> None:
    line = {"id": "u", "question": "Is\u2028it?", "program": "answer = query(img, 'Is it?')"}
    with (folder / "examples.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    assert load(folder).examples[-1].question == "Is\u2028it?"


# -- the release's layouts -------------------------------------------------------------------------------------------


def test_release_programs_by_id(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    bare = 'answer = query(img, "Are there images on the wall?")'
    headed = f'\n# Image 4: Are there images?\nimg = open_image("Image4.jpg")\n{bare}\n'
    broken = 'if x\n    answer = query(img, "Of images?")'
    path.write_text(
        json.dumps(
            {
                "01": {"question": "Are there images on the wall?", "program": bare},
                "2": {"program": headed, "question": "Are there images?"},
                "3": {"question": "Broken?", "program": broken},
                "4": {"question": "How old?", "program": 'answer = "1"'},
            }
        )
    )
    found = load_examples(path)
    assert [example.id for example in found] == ["01", "2", "3", "4"]
    assert [example.program for example in found] == [bare, bare, broken, 'answer = "1"']
    assert {example.form for example in found} == {"image"}


def test_release_programs_over_sets(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    loop = "count = 0\nfor image in images:\n    count += 1\nanswer = count"
    opened = f'images = open_images("ImageSet1.jpg")\n{loop}'
    path.write_text(
        json.dumps(
            [
                {"question_id": 7, "question": "How many?", "program": opened},
                {"question_id": 8, "question": "Of what?", "program": 'answer = "img"'},
            ]
        )
    )
    found = load_examples(path)
    assert found == (Example("7", "How many?", loop, "set"), Example("8", "Of what?", 'answer = "img"', "set"))
    assert {example.form for example in load_examples(path, form="image")} == {"image"}


def test_without_an_opening_line_the_variable_tells_the_form(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    programs = ["answer = len(images)", 'answer = query(img, "Which images?")', 'if images\n    answer = "img"']
    path.write_text(json.dumps({str(n): {"question": "Q?", "program": text} for n, text in enumerate(programs)}))
    assert [example.form for example in load_examples(path)] == ["set", "image", "set"]


def test_our_own_files_load_as_banks() -> None:
    assert load_examples(PACKAGE / "gqa" / "examples.jsonl") == load("gqa").examples
    assert load_reading(PACKAGE / "gqa" / "reading.jsonl") == load("gqa").reading


def test_release_reading_examples(tmp_path: Path) -> None:
    path = tmp_path / "examples.json"
    captions = [f"a picture of thing {number}" for number in range(100)]
    path.write_text(
        json.dumps(
            [
                {"question_id": 1, "question": "One?", "answer": "yes", "captions": captions, "imageId": "5"},
                {"question_id": 2, "question": "Two?", "answer": "no", "captions": [captions, captions[:2]]},
                {"question_id": 3, "question": "Three?", "answer": "no", "captions": "a dog on a mat"},
            ]
        )
    )
    one, two, three = load_reading(path)
    assert (one.form, two.form, three.form) == ("image", "set", "image")
    assert len(one.captions) == 100
    assert three.by_image == (("a dog on a mat",),)
    bank = load("gqa").with_bank(reading=(one, two, three))
    assert [tuple(map(len, example.by_image)) for example in bank.reading] == [(7,), (7, 2), (1,)]
    assert bank.examples == load("gqa").examples
    assert bank.reading[0].captions == tuple(captions[:7])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"1": "answer = 1"}', "id 1: expected a JSON object, found str"),
        ('[{"question": "q", "program": "p"}]', "record 1: id is missing"),
        ('"text"', "expected a JSON object or list, found str"),
        ("{", "line 1: not JSON"),
    ],
)
def test_malformed_release_files_say_where(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "programs.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_examples(path)
    assert says in str(caught.value)
