"""Data sets of the drawn world: the official formats, programs that reach their answers, even odds, clean errors."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine
from data_programs import Interpreter, covr_run, spoken
from PIL import Image

from codevqa.core.errors import InputError, SetupError
from codevqa.eval.datasets import open_dataset
from codevqa.miniworld import export, export_covr, export_nlvr2
from codevqa.miniworld.export import SPLITS, write
from codevqa.miniworld.world import HELD_OUT, draw

IMAGES = 40
GQA = ("train", "val", "testdev", "testdev_combinations", "testdev_wording")
COVR = ("train", "val", "test", "test_combinations", "test_wording")
FIELDS = {
    *("imageId", "question", "answer", "fullAnswer", "isBalanced", "groups", "entailed", "equivalent", "types"),
    *("semantic", "semanticStr", "annotations"),
}
NLVR2 = ("train", "dev", "test1", "test1_combinations", "test1_wording")


@pytest.fixture(scope="module")
def truths() -> dict[str, Any]:
    """What the writers knew when they wrote each row: pictures and questions."""
    return {"covr": [], "nlvr2": []}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, truths: dict[str, Any]) -> Iterator[Path]:
    out = tmp_path_factory.mktemp("data") / "mini"
    with pytest.MonkeyPatch.context() as patch:
        ask, pairs = export_covr.ask, export_nlvr2._pairs

        def noted_ask(*words: Any) -> Any:
            asked = ask(*words)
            truths["covr"] += [asked] if asked else []
            return asked

        def noted_pairs(rng: Any, item: Any, *words: Any) -> Any:
            made = pairs(rng, item, *words)
            truths["nlvr2"] += [(item, *one) for one in made or ()]
            return made

        patch.setattr(export_covr, "ask", noted_ask)
        patch.setattr(export_nlvr2, "_pairs", noted_pairs)
        write(out, images=IMAGES)
    yield out


def gqa(data: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "gqa" / "questions1.2" / f"{name}_questions.json").read_text())
    return found


def graphs(data: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "gqa" / "sceneGraphs" / f"{name}_sceneGraphs.json").read_text())
    return found


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def covr(data: Path) -> list[dict[str, Any]]:
    return [row for name in COVR for row in lines(data / "covr" / f"{name}.jsonl")]


def nlvr2(data: Path) -> list[dict[str, Any]]:
    return [row for name in NLVR2 for row in lines(data / "nlvr2" / "data" / f"{name}.json")]


@pytest.mark.slow
@pytest.mark.parametrize("name", GQA)
def test_functional_programs_reach_the_answer_over_the_scene_graph(data: Path, name: str) -> None:
    known = graphs(data, name)
    questions = gqa(data, f"{name}_balanced" if name == "train" else f"{name}_all")
    operations: Counter[str] = Counter()
    for key, one in questions.items():
        assert spoken(Interpreter(known[one["imageId"]]).run(one["semantic"])) == one["answer"], (key, one)
        operations.update(step["operation"] for step in one["semantic"])
    assert {"select", "filter color", "relate", "exist", "query", "and", "or", "verify color"} <= set(operations)
    assert {"choose rel", "choose color", "choose name", "choose higher", "same color"} <= set(operations) | (
        set() if name == "train" else {"choose rel", "choose name", "same color", "choose higher"}
    )


@pytest.mark.parametrize("name", GQA)
def test_gqa_records_have_every_field(data: Path, name: str) -> None:
    known, questions = graphs(data, name), gqa(data, f"{name}_balanced")
    everything = questions if name == "train" else gqa(data, f"{name}_all")
    assert len(questions) > IMAGES * 2 and questions.items() <= everything.items()
    for key, one in everything.items():
        assert re.fullmatch(r"\d{8}", key)
        assert set(one) == FIELDS
        assert isinstance(one["imageId"], str) and re.fullmatch(r"n?\d+", one["imageId"])
        assert one["answer"] == one["answer"].lower() and 1 <= len(one["answer"].split()) <= 3
        assert one["fullAnswer"].endswith(".") and one["isBalanced"] is (key in questions)
        assert set(one["groups"]) == {"global", "local"} and isinstance(one["groups"]["local"], str)
        assert (one["groups"]["global"] is not None) == (one["types"]["structural"] == "query")
        assert one["types"]["structural"] in ("query", "verify", "choose", "logical", "compare")
        assert one["types"]["semantic"] in ("rel", "attr", "cat", "obj")
        assert key in one["equivalent"] and set(one["equivalent"]) <= set(one["entailed"]) <= set(everything)
        for step in one["semantic"]:
            assert set(step) == {"operation", "dependencies", "argument"}
        objects = known[one["imageId"]]["objects"]
        for part in ("question", "answer", "fullAnswer"):
            words = one[part].lower().rstrip(".?").replace(",", "").replace("'s", "").split()
            for place, thing in one["annotations"][part].items():
                start, _, end = place.partition(":")
                assert set(words[int(start) : int(end or int(start) + 1)]) & {
                    objects[thing]["name"],
                    *("object", "thing", "item", "shape"),
                }
        for step in one["semantic"]:
            found = re.search(r"\(([\d,]+)\)$", step["argument"])
            assert not found or set(found[1].split(",")) <= set(objects)
    assert "->and:  [" in "".join(one["semanticStr"] for one in questions.values())


def test_gqa_ids_may_start_with_zero_and_never_repeat(data: Path) -> None:
    keys = [key for name in GQA for key in gqa(data, f"{name}_balanced")]
    pictures = [key for name in GQA for key in graphs(data, name)]
    assert len(keys) == len(set(keys)) and any(key.startswith("0") for key in keys)
    assert len(pictures) == len(set(pictures)) == IMAGES * 6


def test_entailed_questions_follow(data: Path) -> None:
    questions = gqa(data, "testdev_all")
    seen = 0
    for key, one in questions.items():
        for other in set(one["entailed"]) - set(one["equivalent"]):
            seen += 1
            told = questions[other]["semantic"][-1]
            assert told["operation"] == "verify color" and one["semantic"][-1]["argument"] == "color"
            assert (questions[other]["answer"] == "yes") == (told["argument"] == one["answer"])
            assert questions[other]["imageId"] == one["imageId"], key
    assert seen > 10


def test_every_picture_is_there_and_opens(data: Path) -> None:
    wanted = [data / "gqa" / "images" / f"{key}.jpg" for name in GQA for key in graphs(data, name)]
    wanted += [data / "covr" / "images" / "VG_100K" / f"{key}.jpg" for row in covr(data) for key in row["scenes"]]
    stems = {row["identifier"].rpartition("-")[0] for row in nlvr2(data)}
    wanted += [data / "nlvr2" / "images" / f"{stem}-img{side}.png" for stem in stems for side in (0, 1)]
    assert {*wanted} == {one for one in data.rglob("*") if one.suffix in (".jpg", ".png")}
    for path in wanted:
        with Image.open(path) as picture:
            picture.load()
            assert picture.size == (128, 128) and picture.format == ("PNG" if path.suffix == ".png" else "JPEG")


def test_pictures_show_what_the_scene_graph_says(data: Path, truths: dict[str, Any]) -> None:
    asked = truths["covr"][0]
    with Image.open(data / "covr" / "images" / "VG_100K" / f"{covr(data)[0]['scenes'][0]}.jpg") as picture:
        true = draw(asked.scenes[0])
        pixels = zip(picture.convert("L").tobytes(), true.convert("L").tobytes(), strict=True)
        assert sum(abs(one - two) for one, two in pixels) / (128 * 128) < 4


def test_covr_rows_have_the_official_fields_and_true_answers(data: Path, truths: dict[str, Any]) -> None:
    from codevqa.miniworld.oracle import run_program

    rows = covr(data)
    assert len(rows) == len(truths["covr"]) == IMAGES * 6
    assert len({row["qid"] for row in rows}) == len(rows)
    assert {len(row["scenes"]) for row in rows} == {1, 2, 3, 4, 5}
    for row, asked in zip(rows, truths_in_file_order(truths["covr"], rows), strict=True):
        fields = {"qid", "utterance", "scenes", "properties", "pattern_name", "program", "answer"}
        assert set(row) - {"paraphrased"} == fields
        assert ("paraphrased" in row) == row["qid"].startswith("val_test_")
        assert all(isinstance(key, str) and key.isnumeric() for key in row["scenes"])
        assert len(row["scenes"]) == len(asked.scenes)
        truth = run_program(asked.item.program, asked.scenes, "set")
        true: bool | int | str = truth == "yes" if truth in ("yes", "no") else int(truth) if truth.isdigit() else truth
        assert (row["answer"], type(row["answer"])) == (true, type(true)), row
        assert covr_run(row["program"], asked.scenes) in (None, true), row
        assert not re.search(r"\b(first|second|left|right)\b", row["utterance"])
    assert {type(row["answer"]) for row in rows} == {bool, int, str}
    other = [row for row in rows if row.get("paraphrased", row["utterance"]) != row["utterance"]]
    assert len(other) > 0.9 * IMAGES * 4


def truths_in_file_order(asked: list[Any], rows: list[dict[str, Any]]) -> list[Any]:
    """Splits are written in the order of the files that ``covr`` reads."""
    assert [one.item.question for one in asked] == [row["utterance"] for row in rows]
    return asked


def test_nlvr2_sentences_come_with_four_pairs_two_of_each_label(data: Path, truths: dict[str, Any]) -> None:
    rows = nlvr2(data)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row, (item, pair, _) in zip(rows, truths["nlvr2"], strict=True):
        name, number, place, sentence = row["identifier"].split("-")
        groups[f"{name}-{number}--{sentence}"].append(row)
        assert row["sentence"] == item.question and row["sentence"].endswith(".") and len(pair) == 2
        assert (row["left_url"], row["right_url"]) == ("", "")
        assert place in "0123" and ("directory" in row) == (name == "train") != ("extra_validations" in row)
        assert row["validation"] == {"0": row["label"]}
    assert len(groups) == IMAGES * 6 // 4
    for group in groups.values():
        assert Counter(row["label"] for row in group) == {"True": 2, "False": 2}
        assert len({row["sentence"] for row in group}) == 1


def test_nlvr2_labels_are_true(data: Path, truths: dict[str, Any]) -> None:
    from codevqa.miniworld.oracle import run_program

    for row, (item, pair, _) in zip(nlvr2(data), truths["nlvr2"], strict=True):
        assert {"yes": "True", "no": "False"}[run_program(item.program, pair, "set")] == row["label"], row
        if "find_matching_image" in item.program:
            mark = re.search(r'find_matching_image\(images, "([\w ]+)"', item.program)
            assert mark is not None
            words = mark[1].split()
            shown = [any({t.kind, t.color, t.size} >= set(words) for t in scene.things) for scene in pair]
            assert sum(shown) == 1, row


def test_new_combinations_and_wordings_stay_out_of_the_other_splits(data: Path, truths: dict[str, Any]) -> None:
    names = [split for split in SPLITS for _ in range(IMAGES * (2 if split == "train" else 1))]
    for split, asked in zip(names, truths["covr"], strict=True):
        shown = {(thing.color, thing.kind) for scene in asked.scenes for thing in scene.things}
        assert asked.item.wording.endswith("~") == (split == "test_wording")
        assert split == "test_combinations" or not shown & HELD_OUT
    for name in GQA:
        shown = {(o["attributes"][0], o["name"]) for g in graphs(data, name).values() for o in g["objects"].values()}
        assert bool(shown & HELD_OUT) == (name == "testdev_combinations")
    told = gqa(data, "train_balanced").values()
    assert not any(re.fullmatch(r"Is an? [\w ]+ visible\?|Do you see any .*", one["question"]) for one in told)
    for name in ("train_balanced", "val_all", "testdev_all", "testdev_wording_all"):
        for one in gqa(data, name).values():
            assert not any(f"{color} {kind}" in one["question"] for color, kind in HELD_OUT), one["question"]


def test_answers_are_even(data: Path) -> None:
    for name in GQA:
        questions = gqa(data, f"{name}_balanced").values()
        told = Counter(one["answer"] for one in questions if one["answer"] in ("yes", "no"))
        assert 0.42 < told["yes"] / told.total() < 0.58, (name, told)
        for last in ("and", "or", "verify color", "same color"):
            told = Counter(one["answer"] for one in questions if one["semantic"][-1]["operation"] == last)
            assert abs(told["yes"] - told["no"]) <= 1, (name, last, told)
        colors = Counter(one["answer"] for one in questions if one["groups"]["global"] == "color")
        assert max(colors.values()) <= colors.total() / 8 + 3, (name, colors)
    for name in COVR:
        told = Counter(
            row["answer"] for row in lines(data / "covr" / f"{name}.jsonl") if isinstance(row["answer"], bool)
        )
        assert abs(told[True] - told[False]) <= 10, (name, told)
        told = Counter(
            row["answer"] for row in lines(data / "covr" / f"{name}.jsonl") if row["pattern_name"] == "verify_count"
        )
        assert abs(told[True] - told[False]) <= 1, (name, told)
    choices = [
        one
        for name in GQA
        for one in gqa(data, f"{name}_balanced").values()
        if one["types"]["detailed"] == "chooseAttr"
    ]
    first = sum(one["semantic"][-1]["argument"].startswith(one["answer"]) for one in choices)
    assert len(choices) > 20 and abs(first - len(choices) / 2) <= 3


def test_question_only_guessing_stays_near_chance(data: Path) -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
    import guess

    train = guess.read(open_dataset("gqa", data, f"{GQA[0]}_balanced"))
    test = [row for name in GQA[1:] for row in guess.read(open_dataset("gqa", data, f"{name}_balanced"))]
    assert guess.majority(train, test) < guess.chance(train, test) + 0.06
    leak = [guess.Row(row.question.replace("?", f" {row.answer}?"), row.answer, row.kind, row.binary) for row in train]
    assert guess.majority(leak, leak) > guess.chance(leak, leak) + 0.2


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed, splits in (("a", 3, SPLITS), ("b", 3, SPLITS), ("c", 4, SPLITS), ("d", 3, ("val",))):
        write(tmp_path / name, images=4, seed=seed, splits=splits)
    a, b, c, d = (contents(tmp_path / name) for name in "abcd")
    assert a == b
    assert a.keys() != c.keys() or a != c
    assert sum(a[name] == c.get(name) for name in a) < len(a) * 0.02
    assert len(d) > 20 and {name: a[name] for name in d if name != export.ABOUT} == {
        name: text for name, text in d.items() if name != export.ABOUT
    }


def test_hash_seeds_do_not_matter(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        words = [sys.executable, "-m", "codevqa", "mini-data", str(tmp_path / seed), "--images", "8", "--splits", "val"]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    assert contents(tmp_path / "1") == contents(tmp_path / "2")


def test_the_command_prints_counts_and_leaves_nothing_behind(tmp_path: Path, codevqa: CommandLine) -> None:
    done = codevqa("mini-data", str(tmp_path / "new" / "out"), "--images", "8", "--splits", "val,test")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"( +\d+ \S+\n){6}", done.stdout)
    assert all(line.startswith("codevqa: ") for line in done.stderr.splitlines())
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--splits", "val,dev"], "No split dev"),
        (["--splits", ","], "No split given"),
        (["--images", "0"], "0 pictures"),
        (["--images", "99999999"], "99999999 pictures"),
    ],
)
def test_what_cannot_be_written_is_one_clear_line(
    tmp_path: Path, words: list[str], said: str, codevqa: CommandLine
) -> None:
    done = codevqa("mini-data", str(tmp_path / "out"), *words)
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("codevqa: ") and said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    for force, said in ((False, "is not empty"), (True, "was not written by mini-data")):
        with pytest.raises(InputError, match=said):
            write(tmp_path, images=4, splits=["val"], force=force)
    with pytest.raises(InputError, match="is not a folder"):
        write(tmp_path / "kept.txt", images=4, splits=["val"])
    assert [one.name for one in tmp_path.iterdir()] == ["kept.txt"]


def test_force_replaces_only_what_was_written_before(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    write(out, images=4, splits=["val"])
    with pytest.raises(InputError, match="is not empty"):
        write(out, images=4, seed=1, splits=["val"])
    write(out, images=4, seed=1, splits=["val"], force=True)
    assert json.loads((out / export.ABOUT).read_text())["seed"] == 1
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(*words: Any) -> None:
        raise failure

    monkeypatch.setitem(export.WRITERS, "nlvr2", fails)
    with pytest.raises(SetupError if isinstance(failure, OSError) else KeyboardInterrupt) as caught:
        write(tmp_path / "out", images=4, splits=["val"])
    if isinstance(failure, OSError):
        assert "No space left on device" in str(caught.value) and "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_place_is_one_clear_line(tmp_path: Path, codevqa: CommandLine) -> None:
    (tmp_path / "file").write_text("")
    done = codevqa("mini-data", str(tmp_path / "file" / "out"), "--images", "4", "--splits", "val")
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "Cannot write" in done.stderr
