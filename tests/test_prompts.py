"""Prompt sets: loading, and the paper release's layouts."""

import json
import re
import shutil
from pathlib import Path

import pytest

from codevqa.core.errors import InputError
from codevqa.prompts import Example, load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).parents[1] / "prompts" / "gqa", tmp_path / "mine"))


def test_a_folder_loads_like_a_name(folder: Path) -> None:
    assert load(folder) == load("gqa") == load(str(folder))


@pytest.mark.parametrize(
    ("file", "line", "broken", "says"),
    [
        ("examples.jsonl", 2, '{"id": "x", "question": ', "examples.jsonl, line 2: not JSON"),
        ("examples.jsonl", 3, '["x"]', "examples.jsonl, line 3: expected a JSON object, found list"),
        ("examples.jsonl", 1, '{"id": "x", "question": "Why?"}', "examples.jsonl, line 1: program is missing"),
        ("reading.jsonl", 2, '{"id": "x", "question": "q", "captions": [], "answer": "a"}', "line 2: captions "),
        ("prompt.json", 4, '  "shots": "12",', "prompt.json: shots must be a valid integer, not '12'"),
        ("preamble.txt", 10, "{apis}", "preamble.txt: {api} must stand in it once, found 0 times"),
    ],
)
def test_malformed_files_say_where(folder: Path, file: str, line: int, broken: str, says: str) -> None:
    lines = (folder / file).read_text().split("\n")
    if file == "preamble.txt":
        line = lines.index("{api}") + 1
    lines[line - 1] = broken
    (folder / file).write_text("\n".join(lines))
    with pytest.raises(InputError, match=re.escape(says)):
        load(folder)


def test_line_separators_inside_a_question_end_no_line(folder: Path) -> None:
    line = {"id": "u", "question": "Is\u2028it?", "program": "answer = query(img, 'Is it?')"}
    with (folder / "examples.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(line, ensure_ascii=False) + "\n")
    assert load(folder).examples[-1].question == "Is\u2028it?"


def pool(folder: Path, programs: object, reading: object = None, task: str = "gqa") -> Path:
    """Writes files in the release's layout."""
    path = folder / f"{task}_programs.json"
    path.write_text(programs if isinstance(programs, str) else json.dumps(programs))
    usual = [{"question_id": 1, "question": "Is it?", "answer": "yes", "captions": "a dog on a mat"}]
    (folder / f"{task}_examples50.json").write_text(json.dumps(reading or usual))
    return path


def test_release_programs_lose_the_lines_that_prompts_write_themselves(tmp_path: Path) -> None:
    bare = 'answer = query(img, "Are there images on the wall?")'
    headed = f'\n# Image 4: Are there images?\nimg = open_image("Image4.jpg")\n{bare}\n'
    broken = 'if x\n    answer = query(img, "Of images?")'
    asked = {"01": bare, "2": headed, "3": broken}
    found = load(pool(tmp_path, {id: {"question": "Why?", "program": text} for id, text in asked.items()})).examples
    assert found == tuple(Example(id, "Why?", text) for id, text in zip(asked, (bare, bare, broken), strict=True))
    loop = "count = 0\nfor image in images:\n    count += 1\nanswer = count"
    opened = f'images = open_images("ImageSet1.jpg")\n{loop}'
    listed = [{"question_id": 7, "question": "How many?", "program": opened}]
    assert load(pool(tmp_path, listed, task="covr")).examples == (Example("7", "How many?", loop, "set"),)


def test_release_reading_examples_are_cut_to_the_captions_that_are_read(tmp_path: Path) -> None:
    captions = [f"a picture of thing {number}" for number in range(100)]
    reading = [
        {"question_id": 1, "question": "One?", "answer": "yes", "captions": captions, "imageId": "5"},
        {"question_id": 2, "question": "Two?", "answer": "no", "captions": [captions, captions[:2]]},
        {"question_id": 3, "question": "Three?", "answer": "no", "captions": "a dog on a mat"},
    ]
    one, two, three = load(pool(tmp_path, {"1": {"question": "Q?", "program": "answer = 1"}}, reading)).reading
    assert (one.form, two.form, three.form) == ("image", "set", "image")
    assert one.captions == tuple(captions[:7]) and two.by_image == (tuple(captions[:7]), tuple(captions[:2]))
    assert three.by_image == (("a dog on a mat",),)


def test_what_the_files_of_the_release_do_not_say_is_the_bank_s(tmp_path: Path) -> None:
    usual = {"1": {"question": "Is it true that a?", "program": "answer = query(images[0], 'a?')"}}
    found, ours = load(pool(tmp_path, usual, task="covr")), load("covr")
    assert (found.name, found.form, found.shots, found.captions) == ("covr_programs", "set", 6, 3)
    assert (found.wording, found.reading_wording, found.preamble) == ("release", "release", ours.preamble)
    (tmp_path / "covr_preamble.py").write_text("query\n\n")
    (tmp_path / "covr_preamble_find.py").write_text("query, find_object\n\n")
    (tmp_path / "gqa_preamble_simple.py").write_text("get_pos\n")
    programs = tmp_path / "covr_programs.json"
    assert load(programs).preamble == "query"
    assert load(str(programs.rename(tmp_path / "covr_programs_find.json"))).preamble == "query, find_object"


def test_knowledge_examples_of_the_release_come_with_its_programs(tmp_path: Path) -> None:
    programs = {id: {"question": "Who?", "program": "answer = knowledge_query('Who?')"} for id in "78"}
    known = {"8": {"question": "Who is it?", "answer": "you"}, "7": [{"question": "Who am I?", "answer": "me"}]}
    (tmp_path / "okvqa_examples_knowledge50.json").write_text(json.dumps(known))
    prompts = load(pool(tmp_path, programs, task="okvqa"))
    assert {one.question for one in prompts.knowledge} == {"Who is it?", "Who am I?"}
    assert [one.answer for one in prompts.knowledge_of(["7"])] == ["me"]


def test_what_the_files_of_the_release_lack_is_named(tmp_path: Path) -> None:
    programs = pool(tmp_path, {"1": {"question": "Is it?", "program": "answer = 1"}}, task="covr")
    (tmp_path / "covr_examples50.json").unlink()
    with pytest.raises(InputError, match=r"covr_programs\.json has no reading examples beside it"):
        load(programs)
    with pytest.raises(InputError, match=r"mine_programs\.json is of no known prompt set"):
        load(programs.rename(tmp_path / "mine_programs.json"))
