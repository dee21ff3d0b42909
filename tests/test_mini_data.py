"""Data sets of the drawn world: the official formats, programs that reach their answers, even odds, clean errors."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import CommandLine
from PIL import Image

from codevqa.core.errors import InputError, SetupError
from codevqa.miniworld import export, export_covr, export_nlvr2
from codevqa.miniworld.export import SPLITS, write
from codevqa.miniworld.questions import Item
from codevqa.miniworld.truth import run_program
from codevqa.miniworld.world import HELD_OUT, Scene

IMAGES = 16
GQA = ("train", "val", "testdev", "testdev_combinations", "testdev_wording")
NLVR2 = ("train", "dev", "test1", "test1_combinations", "test1_wording")


class Known:
    """What was drawn and asked when the files were written."""

    def __init__(self) -> None:
        self.scenes: dict[str, Scene] = {}
        self.items: dict[str, Item] = {}


@pytest.fixture(scope="module")
def known() -> Known:
    return Known()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, known: Known) -> Iterator[Path]:
    out = tmp_path_factory.mktemp("data") / "mini"
    with pytest.MonkeyPatch.context() as patch:
        for module in (export_covr, export_nlvr2):
            ask, save = module.ask, module.save

            def asked(*words: Any, ask: Any = ask) -> Any:
                item = ask(*words)
                known.items |= {item.question: item} if item else {}
                return item

            def saved(scene: Scene, path: Path, save: Any = save) -> None:
                known.scenes[path.stem] = scene
                save(scene, path)

            patch.setattr(module, "ask", asked)
            patch.setattr(module, "save", saved)
        write(out, images=IMAGES)
    yield out


def gqa(data: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "gqa" / "questions1.2" / f"{name}_questions.json").read_text())
    return found


def graphs(data: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((data / "gqa" / "sceneGraphs" / f"{name}_sceneGraphs.json").read_text())
    return found


def lines(data: Path, *names: str) -> list[dict[str, Any]]:
    return [json.loads(line) for name in names for line in (data / name).read_text().splitlines()]


def covr(data: Path) -> list[dict[str, Any]]:
    return lines(data, *(f"covr/{split}.jsonl" for split in SPLITS))


def nlvr2(data: Path) -> list[dict[str, Any]]:
    return lines(data, *(f"nlvr2/data/{name}.json" for name in NLVR2))


def test_the_files_of_a_seed_stay_what_they_are(data: Path) -> None:
    # Figures of the mini models are of these questions, so a change of any of them is a change of the figures.
    whole = hashlib.sha256()
    for path in sorted(data.rglob("*.json*")):
        whole.update(path.relative_to(data).as_posix().encode() + path.read_bytes())
    assert whole.hexdigest()[:16] == "61782c01727c13b6"


def test_gqa_records_have_every_field(data: Path) -> None:
    every = {"imageId", "question", "answer", "fullAnswer", "isBalanced", "groups", "entailed", "equivalent"}
    every |= {"types", "semantic", "semanticStr", "annotations"}
    for name in GQA[1:]:
        shown, balanced, all_of = graphs(data, name), gqa(data, f"{name}_balanced"), gqa(data, f"{name}_all")
        assert len(balanced) > IMAGES * 2 and balanced.items() <= all_of.items()
        for key, one in all_of.items():
            assert re.fullmatch(r"\d{8}", key) and set(one) == every and one["imageId"] in shown
            assert one["isBalanced"] is (key in balanced)
            assert key in one["equivalent"] and set(one["equivalent"]) <= set(one["entailed"]) <= set(all_of)


def test_every_picture_is_there_and_opens(data: Path) -> None:
    wanted = [data / "gqa" / "images" / f"{key}.jpg" for name in GQA for key in graphs(data, name)]
    wanted += [data / "covr" / "images" / "VG_100K" / f"{key}.jpg" for row in covr(data) for key in row["scenes"]]
    stems = {row["identifier"].rpartition("-")[0] for row in nlvr2(data)}
    wanted += [data / "nlvr2" / "images" / f"{stem}-img{side}.png" for stem in stems for side in (0, 1)]
    assert {*wanted} == {one for one in data.rglob("*") if one.suffix in (".jpg", ".png")}
    for path in wanted:
        with Image.open(path) as picture:
            picture.load()
            assert (picture.size, picture.format) == ((128, 128), "PNG" if path.suffix == ".png" else "JPEG")


def test_covr_rows_have_the_official_fields_and_true_answers(data: Path, known: Known) -> None:
    rows = covr(data)
    for row in rows:
        fields = {"qid", "utterance", "scenes", "properties", "pattern_name", "program", "answer"}
        assert set(row) - {"paraphrased"} == fields
        assert ("paraphrased" in row) == row["qid"].startswith("val_test_")
        scenes = [known.scenes[key] for key in row["scenes"]]
        truth = run_program(known.items[row["utterance"]].program, scenes, "set")
        true: bool | int | str = truth == "yes" if truth in ("yes", "no") else int(truth) if truth.isdigit() else truth
        assert (row["answer"], type(row["answer"])) == (true, type(true)), row
    assert {type(row["answer"]) for row in rows} == {bool, int, str}


def test_nlvr2_sentences_come_with_two_true_and_two_false_pairs(data: Path, known: Known) -> None:
    groups: dict[str, list[str]] = defaultdict(list)
    for row in nlvr2(data):
        name, number, place, sentence = row["identifier"].split("-")
        pair = [known.scenes[f"{name}-{number}-{place}-img{side}"] for side in (0, 1)]
        truth = run_program(known.items[row["sentence"]].program, pair, "set")
        assert {"yes": "True", "no": "False"}[truth] == row["label"] == row["validation"]["0"]
        assert row["sentence"].endswith(".")
        assert (row["left_url"], row["right_url"]) == ("", "")
        assert ("directory" in row) == (name == "train") != ("extra_validations" in row)
        groups[f"{name}-{number}--{sentence}"].append(row["label"])
    assert len(groups) == IMAGES * 6 // 4
    assert all(sorted(labels) == ["False", "False", "True", "True"] for labels in groups.values())


def test_new_combinations_and_wordings_stay_out_of_the_other_splits(data: Path, known: Known) -> None:
    for split in SPLITS:
        for row in lines(data, f"covr/{split}.jsonl"):
            shown = {(thing.color, thing.kind) for key in row["scenes"] for thing in known.scenes[key].things}
            assert known.items[row["utterance"]].wording.endswith("~") == (split == "test_wording")
            assert split == "test_combinations" or not shown & HELD_OUT
    for name in GQA:
        shown = {(o["attributes"][0], o["name"]) for g in graphs(data, name).values() for o in g["objects"].values()}
        assert bool(shown & HELD_OUT) == (name == "testdev_combinations")
        unseen = [
            re.fullmatch(r"Is an? [\w ]+ visible\?", one["question"]) for one in gqa(data, f"{name}_balanced").values()
        ]
        assert name == "testdev_wording" or not any(unseen)
        for one in gqa(data, f"{name}_balanced").values():
            named = any(f"{color} {kind}" in one["question"] for color, kind in HELD_OUT)
            assert name == "testdev_combinations" or not named


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_seed_gives_the_same_bytes_whatever_else_is_written(tmp_path: Path) -> None:
    for name, seed, splits, hashes in (("a", 3, "val", "1"), ("b", 3, "val,test", "2"), ("c", 4, "val", "1")):
        words = ["mini-data", str(tmp_path / name), "--images", "8", "--seed", str(seed), "--splits", splits]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run([sys.executable, "-m", "codevqa", *words], check=True, capture_output=True, env=environment)
    a, b, c = (contents(tmp_path / name) for name in "abc")
    assert len(a) > 20
    assert {name for name in a if a[name] != b[name]} == {export.ABOUT}
    assert sum(a[name] == c.get(name) for name in a) < len(a) * 0.1


@pytest.mark.parametrize(
    "words", [["--splits", "val,dev"], ["--splits", ","], ["--images", "0"], ["--images", "99999999"]]
)
def test_what_cannot_be_written_is_one_clear_line(tmp_path: Path, words: list[str], codevqa: CommandLine) -> None:
    done = codevqa("mini-data", str(tmp_path / "out"), *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("codevqa: ")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "kept.txt"):
        with pytest.raises(InputError, match="is not an empty folder"):
            write(out, images=4, splits=["val"])
    (tmp_path / "out").mkdir()
    write(tmp_path / "out", images=4, splits=["val"])
    assert {one.name for one in tmp_path.iterdir()} == {"out", "kept.txt"}


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_interrupted_run_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fails(*words: Any) -> None:
        raise failure

    monkeypatch.setitem(export.WRITERS, "nlvr2", fails)
    with pytest.raises(SetupError if isinstance(failure, OSError) else KeyboardInterrupt):
        write(tmp_path / "out", images=4, splits=["val"])
    assert list(tmp_path.iterdir()) == []
