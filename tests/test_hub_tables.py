"""``codevqa eval hf://OWNER/NAME``: any table of questions about pictures, from a hub on this machine."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import GARDEN, CommandLine, assert_one_clear_line
from eval_kit import fake_engine
from hub_kit import COMMIT, Hub, know_only, serve_hub
from PIL import Image

from codevqa.core.errors import CodeVQAError, InputError
from codevqa.eval import Store, evaluate, metric_for, open_dataset
from codevqa.eval.datasets import HubColumns
from codevqa.eval.task import Example

pyarrow = pytest.importorskip("pyarrow", reason="needs codevqa[hub]")
from pyarrow import parquet  # noqa: E402


def cell(color: str = "red") -> dict[str, Any]:
    data = io.BytesIO()
    Image.new("RGB", (8, 6), color).save(data, "PNG")
    return {"bytes": data.getvalue(), "path": "x.png"}


def table(*rows: dict[str, Any], end: int | None = None, **classes: Any) -> bytes:
    data, written = io.BytesIO(), pyarrow.Table.from_pylist(list(rows)).slice(0, end)
    if classes:
        about = json.dumps({"info": {"features": classes}})
        written = written.replace_schema_metadata({"huggingface": about})
    parquet.write_table(written, data)
    return data.getvalue()


ROW = {"image": cell(), "question": "Is it red?", "answer": "yes"}
SEEN = {"picture": {"bytes": GARDEN.read_bytes(), "path": None}, "text": "Is there a house?", "truth": True}
PAIR = {"images": [cell(), cell("blue"), cell()], "question": "How many?", "answers": ["3", "three"], "id": 5}
NAMES = {"_type": "ClassLabel", "names": ["no", "maybe"]}
TEN = [{"answer": "red", "answer_id": number} for number in range(2)]
ODD: dict[str, dict[str, Any]] = {
    "no-picture": {**ROW, "image": {"bytes": None, "path": "x"}},
    "address": {**ROW, "image": "http://localhost/x.png"},
    "half": {**ROW, "image": [cell(), None]},
    "no-question": {**ROW, "question": " "},
    "blank": {**ROW, "answer": ["yes", ""]},
}
REPOSITORIES = {
    "datasets/own/vqa": {
        "data/test-00000-of-00002.parquet": table(ROW, {**ROW, "image": cell("blue"), "answer": "no"}),
        "data/test-00001-of-00002.parquet": table(*[{**ROW, "question": f"Is it {name}?"} for name in "ab"]),
        "data/train-00000-of-00001.parquet": table({**SEEN, "question_id": "a"}, {**SEEN, "question_id": "a"}),
    },
    "datasets/own/sets": {"default/only/0000.parquet": table(PAIR)},
    "datasets/own/parts": {f"{part}/test-00000-of-00001.parquet": table(ROW) for part in "ab"},
    "datasets/own/kinds": {
        "a/dev-00000-of-00001.parquet": table({**ROW, "answer": 1, "n": 2.5, "ten": TEN}, answer=NAMES),
        "b/list-0000-of-0001.parquet": table({**ROW, "answers": [0, 1], "answer": None}, answers={"feature": NAMES}),
        "b/old-0000-of-0001.parquet": table({**ROW, "answers": [1], "answer": None}, answers=[NAMES]),
        "b/hidden-0000-of-0001.parquet": table({**ROW, "answer": -1}, answer=NAMES),
    },
    "datasets/own/odd": {
        **{f"data/{name}-00000-of-00001.parquet": table(row) for name, row in ODD.items()},
        "data/second-00000-of-00001.parquet": table(ROW, {**ROW, "answer": None}),
        "data/damaged-00000-of-00001.parquet": b"no table",
        "data/empty-00000-of-00001.parquet": table(ROW, end=0),
    },
    "datasets/own/csv": {"data.csv": b"image,question"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with serve_hub(tmp_path_factory.mktemp("hub"), REPOSITORIES) as served:
        yield served


@pytest.fixture
def hub(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The only hub that this process knows, with an empty cache."""
    server.cache, server.down = tmp_path / "cache", False
    server.asked.clear()
    know_only(server, monkeypatch)
    return server


def first(address: str, split: str | None = None, **columns: str) -> Example:
    return next(iter(open_dataset(address, split=split, columns=HubColumns(**columns))))


def colors(example: Example) -> list[Any]:
    return [image.load().pixels.getpixel((0, 0)) for image in example.images]


def test_the_usual_columns_need_no_option(hub: Hub) -> None:
    opened = open_dataset("hf://own/vqa")
    assert (opened.name, opened.split) == ("own/vqa", "test") and COMMIT[:12] in opened.notes[0]
    red, blue, *others = opened
    assert (red.id, red.question, red.gold, red.form) == ("1", "Is it red?", ("yes",), "image")
    assert (blue.id, blue.gold, colors(blue)) == ("2", ("no",), [(0, 0, 255)])
    assert [example.id for example in others] == ["3", "4"] and others[0].images == red.images
    assert red.cluster == others[0].cluster != blue.cluster, "questions about one picture go right together"
    assert metric_for(opened.name, "strict").score(red, "yes") == 1


def test_columns_of_other_names_and_ids_that_are_there_twice(hub: Hub) -> None:
    columns = HubColumns("picture", "text", "truth")
    a, other = open_dataset("hf://own/vqa", split="train", columns=columns)
    assert (a.id, other.id, a.gold, a.question) == ("a", "a#2", ("yes",), "Is there a house?")
    assert a.images[0].path.read_bytes() == GARDEN.read_bytes()


def test_several_pictures_are_a_set_and_each_answer_is_accepted(hub: Hub) -> None:
    (example,) = open_dataset("hf://own/sets")
    assert (example.id, example.form, example.gold) == ("5", "set", ("3", "three"))
    assert colors(example) == [(255, 0, 0), (0, 0, 255), (255, 0, 0)]


def test_answers_of_every_kind(hub: Hub) -> None:
    assert first("hf://own/kinds").gold == ("maybe",)
    assert first("hf://own/kinds", "dev", answer="n").gold == ("2.5",)
    assert first("hf://own/kinds", "a/dev", answer="ten").gold == ("red", "red")
    assert first("hf://own/kinds", "list", answer="answers").gold == ("no", "maybe")
    assert first("hf://own/kinds", "old", answer="answers").gold == ("maybe",)


def test_files_are_fetched_no_further_than_they_are_read(hub: Hub) -> None:
    first("hf://own/vqa@main")
    assert sum("GET /datasets/own/vqa/resolve/" in request for request in hub.asked) == 1
    hub.down = True
    assert first("hf://own/vqa").id == "1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("hf://own",), "'hf://own' is no address on the hub."),
        (("hf://own/none",), "no data set own/none at main to give: 404"),
        (("hf://own/csv",), "own/csv has no tables in the format Parquet. Give hf://own/csv@refs/convert/parquet"),
        (("hf://own/vqa", "--split", "tets"), "No split of own/vqa 'tets'. Did you mean test? There are: test, train."),
        (("hf://own/parts",), "own/parts has several tables 'test'. Give --split: a/test, b/test."),
        (("hf://own/odd",), "No split of own/odd 'test'."),
        (
            ("hf://own/vqa", "--image", "imge"),
            "own/vqa, test, has no column 'imge'. Did you mean image? Give --image: image, question, answer.",
        ),
        (("hf://own/vqa", "--split", "train"), "own/vqa, train, has no column 'image'. Give --image: "),
        (("hf://own/odd", "--split", "no-picture"), "Row 1 of own/odd, no-picture, has no picture that can be read in"),
        (("hf://own/odd", "--split", "address"), "Row 1 of own/odd, address, has no picture that can be read in"),
        (("hf://own/odd", "--split", "half"), "Row 1 of own/odd, half, has no picture that can be read in its column"),
        (("hf://own/odd", "--split", "no-question"), "Row 1 of own/odd, no-question, has no question in its column"),
        (
            ("hf://own/odd", "--split", "second"),
            "Row 2 of own/odd, second, has no answer in its column 'answer'. Give another --answer",
        ),
        (
            ("hf://own/odd", "--split", "blank"),
            "has no answer in its column 'answer'. Give another --answer or --split",
        ),
        (("hf://own/odd", "--split", "damaged"), "Cannot read data/damaged-00000-of-00001.parquet of own/odd"),
        (("hf://own/odd", "--split", "empty"), "own/odd has no rows in empty. Give another --split."),
        (("hf://own/kinds", "--split", "hidden"), "Row 1 of own/kinds, b/hidden, has no answer in its column"),
        (("hf://own/vqa", "--data", "x"), "hf://own/vqa does not accept --data. Leave it out."),
        (("hf://own/vqa", "--group-by", "x"), "hf://own/vqa does not accept --group-by."),
        (("gqa", "--data", "x", "--image", "a"), "--image does nothing without hf://OWNER/NAME."),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    hub: Hub, tmp_path: Path, codevqa: CommandLine, words: tuple[str, ...], message: str
) -> None:
    done = codevqa("eval", *words, "--out", tmp_path / "run", "--quiet")
    assert_one_clear_line(done, message, done.returncode)
    assert done.returncode in (1, 2) and not (tmp_path / "run").exists()


def test_columns_are_for_tables_and_pyarrow_is_needed(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="does not accept a choice of columns"):
        open_dataset("gqa", "x", columns=HubColumns("a"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CodeVQAError, match=r"need pyarrow\. pip install"):
        open_dataset("hf://own/vqa")


def test_a_run_on_a_table_is_resumed_and_reported(hub: Hub, tmp_path: Path, codevqa: CommandLine) -> None:
    def ask(name: str, **options: Any) -> Store:
        return evaluate(engine, open_dataset(name), tmp_path / "run", **options)

    with fake_engine('answer = "yes"') as engine:
        ask("hf://own/vqa", limit=1).close()
        with ask("hf://own/vqa", resume=True) as store:
            assert store.counts()["codevqa", 0] == 4
            assert (store.info.dataset, store.info.split, store.info.unofficial) == ("own/vqa", "test", "")
            assert [str(path) for path in store.info.sources] == [str(next(hub.cache.rglob("main.json")))]
        with pytest.raises(InputError, match="data_hash was"):
            ask("hf://own/sets", resume=True)
        done = codevqa("eval", "hf://own/vqa", "--out", tmp_path / "cli", "--split", "train", "--limit", 1, "--quiet",
                       "--image", "picture", "--question", "text", "--answer", "truth", "--method", "codevqa",
                       engine=engine)  # fmt: skip
    assert done.returncode == 0 and "own/vqa train" in done.stdout, done.stderr
    report = json.loads(codevqa("report", tmp_path / "run", "--json").stdout)
    assert "0.75" in json.dumps(report)
