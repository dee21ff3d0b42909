"""Questions about collections: drawn with their truth, read with Visual Haystacks', scored by what was selected."""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from data_files import dump, lines, only, paint, seen
from eval_kit import fake_engine

from codevqa import Answer
from codevqa.core.errors import InputError
from codevqa.core.selection import Pick, Selection
from codevqa.core.trace import ImageRef, Trace
from codevqa.eval import evaluate, open_dataset
from codevqa.eval.metrics import metric_for
from codevqa.eval.report.reading import pairs_of
from codevqa.eval.report.summary import summarize
from codevqa.eval.run import local
from codevqa.eval.statistics import Interval
from codevqa.mini import export_collections
from codevqa.mini.export import write_datasets
from codevqa.mini.questions import Condition, SceneQuestion
from codevqa.mini.truth import query_truth, run_program

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
CUPS: dict[str, Any] = {"id": "1", "collection": "a", "images": ["a.png", "b.png", "c.png"], "kind": "selection"}
CUPS |= {"question": "Which pictures show a cup?", "answer": ["a.png", "c.png"], "pictures": ["a.png", "c.png"]}
CUPS["program"] = 'answer = [img for img in images if query(img, "Is there a cup?") == "yes"]'


def test_answers_and_pictures_are_those_of_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of the question's kind, run over the true scenes, gives the answer; and so for each condition."""
    truth, checked = export_collections._answered_row, Counter[str]()

    def beside(item: SceneQuestion, kind: str, scenes: Any, paths: Any) -> dict[str, Any] | None:
        row = truth(item, kind, scenes, paths)
        if row is None:
            return None
        if "program" not in row:
            assert run_program(item.program, scenes, "set") == str(row["answer"])
        elif kind != "selection":
            some = [scene for path, scene in zip(paths, scenes, strict=True) if path in row["images"]]
            result = run_program(row["program"], some, "set")
            answers = Counter(result.split(", ")) if kind == "group" else result
            assert answers == row["answer"]
        else:
            question = row["program"].split('"')[1]
            asked = [path for path, scene in zip(paths, scenes, strict=True) if query_truth(scene, question) == "yes"]
            assert asked == row["answer"]
        if isinstance(condition := getattr(item.slots, "c", None), Condition) and "pictures" in row:
            loop = f"{condition.loop}\nanswer = count"
            assert run_program(loop, scenes, "set") == str(len(row["pictures"]))
        checked[kind] += 1
        return row

    monkeypatch.setattr(export_collections, "_answered_row", beside)
    for split in ("test", "test_combinations"):
        export_collections.write_collections_split(tmp_path, split, 36, 5, 0, 7)
        asked = [json.loads(line) for line in (tmp_path / f"{split}_7.jsonl").read_text().splitlines()]
        assert len(asked) == 36 and {row["kind"] for row in asked} == {*export_collections.KINDS}
        yes_no = Counter(row["answer"] for row in asked if row["answer"] in ("yes", "no"))
        assert min(yes_no.values()) >= 5
    assert {*checked} == {*export_collections.KINDS}


def test_drawn_collections_open_with_their_pictures(tmp_path: Path) -> None:
    counts = write_datasets(tmp_path / "data", images=8, splits=["val"], sets=[6])
    assert counts["collections/val_6.jsonl"] == counts["covr/val_6.jsonl"] == 8
    opened = open_dataset("collections", tmp_path / "data", "val_6")
    examples = list(opened)
    assert (opened.prompts, opened.part) == ("covr", ())
    assert all(example.gold and len(seen(example)) == len(example.images) > 1 for example in examples)
    assert [len({example.cluster for example in examples}), {example.form for example in examples}] == [2, {"set"}]


def test_records_become_examples_and_bad_ones_are_named(tmp_path: Path) -> None:
    group = {**CUPS, "id": "2", "answer": {"red": 2, "blue": 1}, "pictures": []}
    dump(tmp_path / "mine_3.jsonl", lines(CUPS, group))
    first, second = open_dataset("collections", tmp_path, "mine_3", pictures=False)
    assert (first.gold, first.record["pictures"]) == (("image 1, image 3",), [1, 3])
    assert (second.gold, second.groups) == (("red, red, blue",), {"kind": "selection", "images": "3"})
    dump(tmp_path / "mine_3.jsonl", lines(CUPS, {**CUPS, "pictures": ["d.png"]}))
    with pytest.raises(InputError, match=r"Record 2 .* has no 'd\.png'"):
        open_dataset("collections", tmp_path, "mine_3", pictures=False)


def test_programs_of_the_data_are_run_and_their_pictures_scored(tmp_path: Path) -> None:
    for name in "abc":
        paint(tmp_path / f"{name}.png", size=(32, 24))
    broken = {**CUPS, "id": "2", "program": "answer = nothing"}
    dump(tmp_path / "mine_3.jsonl", lines(CUPS, broken))
    data = open_dataset("collections", tmp_path, "mine_3")
    with fake_engine("answer = 1") as engine, evaluate(engine, data, tmp_path / "run") as store:
        summary = summarize(pairs_of(store), metric_for("collections"))
        kept = {row.id: row for key in store.counts() if key[0] == "codevqa" for row in store.rows(*key)}
    assert kept["1"].prediction == "image 1, image 2, image 3" and (kept["2"].error or "").startswith("Program")
    figure = summary.methods["codevqa"].corpus["picture_f1"]
    assert isinstance(figure, Interval) and (figure.value, figure.n) == (0.8, 1)
    assert summary.methods["pnpvqa"].corpus["picture_f1"] is None


def test_a_number_counts_the_pictures_with_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    yes, no = ([Pick(ImageRef(place), chance) for place in places] for places, chance in (((4, 2), 1.0), ((1,), 0.0)))
    monkeypatch.setattr(local, "selections", lambda trace: (Selection("Is there a cup?", tuple(yes), tuple(no)),))
    actual = [local.picture_numbers(Answer("How many?", text, None, Trace())) for text in ("2", "1", "3", "yes")]
    assert actual == [[2, 4], [1], None, None]


def test_exact_match_and_errors_of_counts(tmp_path: Path) -> None:
    metric = metric_for("collections")
    answers = (["a.png", "c.png"], {"red": 2, "blue": 1}, 5)
    dump(tmp_path / "mine_3.jsonl", lines(*(CUPS | {"answer": answer} for answer in answers)))
    selection, group, count = open_dataset("collections", tmp_path, "mine_3", pictures=False)
    assert [metric.score(selection, prediction) for prediction in ("image 3, image 1", "image 1")] == [1, 0]
    assert [metric.score(group, prediction) for prediction in ("red, blue, red", "red, blue, blue")] == [1, 0]
    assert [metric.score(count, prediction) for prediction in ("five", "4")] == [1, 0]
    assert metric.corpus([(count, "three"), (count, "nothing"), (group, "red")]) == {"count_error": 3.5}


def test_visual_haystacks_reads_its_official_files(tmp_path: Path) -> None:
    def row(answer: str, *needles: str) -> dict[str, Any]:
        question = "For the image with a truck, is there a dog?"
        turns = [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
        return {"conversations": turns, "pos_image": [*needles], "neg_image": ["coco/test2017/3.jpg", "4.jpg"]}

    folder, places = tmp_path / "VHs_qa", ("coco/val2017/1.jpg", "coco/val2017/2.jpg", "coco/test2017/3.jpg")
    dump(folder / "single_needle" / "VHs_large" / "visual_haystack_3.json", [row("yes", "coco/val2017/1.jpg")])
    dump(folder / "multi_needle" / "multi_needle_2" / "visual_haystack_4.json", [row("no", "1.jpg", "val2017/2.jpg")])
    for place in (*places, "coco/test2017/4.jpg"):
        paint(tmp_path / place)
    single = only(open_dataset("vhs", tmp_path, "single_needle_3"))
    assert (single.gold, single.form, single.groups) == (("yes",), "set", {"images": "3", "needles": "1"})
    assert tmp_path / "coco/val2017/1.jpg" in [image.path for image in single.images]
    assert single.question == "For the image with a truck, is there a dog?"
    two = only(open_dataset("vhs", tmp_path, "multi_needle_2_4"))
    assert two.gold == ("no",) and len(seen(two)) == 4 and two.images != single.images
    assert two == only(open_dataset("vhs", tmp_path, "multi_needle_2_4")), "the order is the same every time"
    dump(tmp_path / "odd.json", [row("maybe", "1.jpg")])
    with pytest.raises(InputError, match="odd"):
        list(open_dataset("vhs", tmp_path, "odd"))
