"""The judge of a program's steps: against graphs written by hand, and against the drawn data set's answers."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from codevqa.core.errors import InputError
from codevqa.eval.datasets import open_dataset
from codevqa.eval.metrics.scene_graphs import SceneGraphs, SceneJudge, find_scene_graphs, load_scene_graphs
from codevqa.eval.metrics.steps import image_id, judge_steps, summarize_steps
from codevqa.eval.task import DatasetPicture, Example, Located, Row
from codevqa.mini.export import write_datasets


def thing(name: str, box: tuple[int, int, int, int], *attributes: str) -> dict[str, Any]:
    related = [{"name": "near", "object": "1"}]
    return {"name": name, **dict(zip("xywh", box, strict=True)), "attributes": attributes, "relations": related}


STREET: dict[str, Any] = {
    "width": 480,
    "height": 240,
    "objects": {
        "1": thing("car", (0, 120, 120, 60), "red", "parked"),
        "2": thing("man", (300, 60, 60, 180), "tall"),
        "3": thing("suit", (300, 100, 60, 100), "grey", "black"),
        "4": thing("window", (0, 0, 40, 40), "large"),
        "5": thing("window", (60, 0, 40, 40), "small"),
        "6": thing("glasses", (320, 70, 20, 8)),
    },
}
FARM: dict[str, Any] = {"width": 100, "height": 100, "objects": {"9": thing("horse", (0, 0, 50, 50), "brown")}}


def graphs(**records: dict[str, Any]) -> SceneGraphs:
    scene_graphs = SceneGraphs()
    for key, record in records.items():
        scene_graphs.add(key, record)
    return scene_graphs


def street() -> SceneJudge:
    words = graphs(street=STREET, farm=FARM)
    return SceneJudge(words["street"], words)


def example(*images: str, id: str = "1") -> Example:
    pictures = tuple(DatasetPicture(Path(f"images/{name}.jpg")) for name in images)
    return Example(id, "?", pictures, "image" if len(images) == 1 else "set", ("yes",))


def call(name: str, value: Any, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, "value": value, "error": None}


@pytest.mark.parametrize(
    ("question", "truth", "wrong"),
    [
        ("Is there a car?", "yes", "no"),
        ("Are there any windows here?", "yes", "no"),
        ("Does the picture show a large window?", "yes", "no"),
        ("What color is the car?", "red", "blue"),
        ("Which color does the suit have?", "black", "brown"),
        ("Is the car blue?", "no", "yes"),
        ("Is there a dog?", None, ""),  # not in the vocabulary
        ("Is there a horse?", None, ""),  # nobody lists everything
        ("Is there a blue car?", None, ""),  # there may be another
        ("Is there a person?", None, ""),  # the man is one
        ("What color is the man?", None, ""),  # not annotated
        ("What size is the window?", None, ""),  # which one?
        ("Is the car wooden?", None, ""),
        ("Is the car to the left of the man?", None, ""),  # relations are not read
    ],
)
def test_what_a_graph_tells(question: str, truth: str | None, wrong: str) -> None:
    judgement = street().question(question)
    assert (judgement is None) == (truth is None)
    if judgement is not None:
        assert judgement.holds(truth) and not any(map(judgement.holds, (wrong, "", f"{wrong} and {truth}")))


def test_position() -> None:
    judgement = street().position("red car")
    assert judgement is not None
    # The car spans x 0..6 and y 6..12 on the grid, counted upwards; within a patch of it is right.
    assert judgement.holds([3, 9]) and judgement.holds([6.9, 12.9])
    assert not any(map(judgement.holds, ([7.1, 9], [3, 13.1], [3, 15], None, "left")))


def test_a_position_of_nothing_cannot_be_told_and_one_of_several_may_be_any() -> None:
    assert all(street().position(phrase) is None for phrase in ("horse", "blue car", "person", "man on the left"))
    judgement = street().position("windows")
    assert (
        judgement is not None
        and judgement.holds([1, 22])
        and judgement.holds([4, 22])
        and not judgement.holds([10, 10])
    )


def test_steps_of_a_trace() -> None:
    trace = {
        "calls": [
            call("open_image", {"image": 1}, path="Image1.jpg"),
            call("query", "blue", img={"image": 1}, question="What color is the car?"),
            call("get_pos", [3.0, 9.0], img={"image": 1}, object="car"),
            call("query", "sunny", img={"image": 1}, question="How is the weather?"),
            {**call("query", None, img={"image": 1}, question="Is there a car?"), "error": {"type": "ModelError"}},
            call("own", 3, n=1),
        ]
    }
    steps = judge_steps(graphs(street=STREET), example("street"), trace)
    assert [(step.index, step.right) for step in steps] == [(2, False), (3, True), (4, None)]
    assert (steps[0].name, steps[0].truth) == ("query", "red")


def test_summary() -> None:
    true = call("query", "yes", img={"image": 1}, question="Is there a car?")
    false = call("get_pos", [20.0, 1.0], img={"image": 1}, object="car")
    unknown = call("query", "x", img={"image": 1}, question="Why?")

    def row(*calls: dict[str, Any], **other: Any) -> Row:
        return Row("1", "codevqa", 0, "yes", trace={"calls": list(calls)}, **other)

    asked: list[tuple[Row, bool | None]] = [
        *((row(true), True), (row(true, true), True), (row(true, false), True), (row(unknown), True)),
        *((row(true), False), (row(false), False), (row(false), None)),
        (row(true, false, fallback=True, error="ProgramLimitError"), True),
    ]
    rows = ((example("street", id=str(n)), record, right) for n, (record, right) in enumerate(asked))
    summary = summarize_steps(graphs(street=STREET), rows)
    assert (summary.questions, summary.failed, summary.judged_count) == (6, 1, 5)
    assert [summary.outcomes[f"right, {outcome}"] for outcome in ("steps right", "a step wrong")] == [2, 1]
    assert [summary.outcomes[f"wrong, {outcome}"] for outcome in ("steps right", "a step wrong")] == [1, 1]
    assert summary.calls == {"query": 6, "get_pos": 2}
    shares = {name: (share.value, share.n, share.clusters) for name, share in summary.shares.items()}
    assert (shares["query"], shares["get_pos"], shares["wrong reason"]) == ((1, 5, 4), (0, 2, 2), (1 / 3, 3, 3))
    assert shares["all"] == (5 / 7, 7, 5)  # calls of one question go together


def test_agrees_with_the_answers_of_the_drawn_data_set(tmp_path: Path) -> None:
    write_datasets(tmp_path / "mini", images=110, splits=("val",))
    file = find_scene_graphs(tmp_path / "mini", "val_balanced")
    assert file is not None
    words = load_scene_graphs(file)
    count = 0
    for example in open_dataset("gqa", tmp_path / "mini", "val_balanced"):
        truth = SceneJudge(words[image_id(example.images[0].name)], words).question(example.question)
        count += truth is not None
        assert truth is None or (truth.holds(example.gold[0]) and not truth.holds("octopus")), example.question
    assert count >= 30


def test_graphs_are_found_beside_the_questions_and_in_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "gqa" / "sceneGraphs" / "val_sceneGraphs.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"street": STREET, "farm": FARM, "other": FARM}))
    for folder, split in ((tmp_path, "val_balanced"), (tmp_path / "gqa", "val_all"), (tmp_path, "val")):
        assert find_scene_graphs(folder, split) == Located(path)
    assert find_scene_graphs(tmp_path, "testdev_balanced") is None
    packed = tmp_path / "packed"
    packed.mkdir()
    with zipfile.ZipFile(packed / "sceneGraphs.zip", "w") as archive:
        archive.write(path, "val_sceneGraphs.json")
    file = find_scene_graphs(packed, "val_balanced")
    assert file is not None
    scene_graphs = load_scene_graphs(file, {"street", "elsewhere"})  # the vocabulary is that of all
    assert (
        list(scene_graphs) == ["street"]
        and {"horse", "car"} <= scene_graphs.names
        and "brown" in scene_graphs.attributes
    )


def test_a_damaged_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "val_sceneGraphs.json"
    for text, words in (
        ('{"1": {"objects": {"2": {"name": "x"}}}}', "image 1 lacks something"),
        ('{"1": {', path.name),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=words):
            load_scene_graphs(Located(path))
