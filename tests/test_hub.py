"""Tables of the Hugging Face hub: a hub on this machine serves real ones, with the columns of the copies we read."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_kit import GARDEN
from data_files import SUIT
from hub_kit import COMMIT, Hub, serve_hub
from PIL import Image

pyarrow = pytest.importorskip("pyarrow", reason="needs codevqa[hub]")
from pyarrow import parquet  # noqa: E402

READ = """
import json, sys
from itertools import islice
from codevqa.core.errors import CodeVQAError
from codevqa.eval.datasets import open_dataset

def shown(one):
    seen = [image.load().pixels.getpixel((0, 0)) for image in one.images]
    said = {"seen": seen, "paths": [str(image.path) for image in one.images], "group": one.group}
    return said | {name: getattr(one, name) for name in ("id", "gold", "groups", "cluster", "record")}

def read(name, address, split, limit):
    try:
        return [shown(one) for one in islice(open_dataset(name, address, split), limit)]
    except CodeVQAError as error:
        return str(error)

limit, missing, *asked = sys.argv[1:]
sys.modules.update(dict.fromkeys(missing.split()))
print(json.dumps([read(*words.split(), int(limit)) for words in asked]))
"""


def cell(color: str = "red") -> dict[str, Any]:
    data = io.BytesIO()
    Image.new("RGB", (8, 6), color).save(data, "PNG")
    return {"bytes": data.getvalue(), "path": None}


def table(*rows: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(rows)), data)
    return data.getvalue()


ODD = {"entailed": "['14199180', '14199179']", "annotations": {"question": [{"objectId": "3", "value": "693475"}]}}
SUITS = [{**SUIT, **ODD, "id": f"0{number}", "imageId": "n1"} for number in range(3)]
TEN = [{"answer": "net", "answer_confidence": "maybe", "answer_id": place} for place in range(1, 11)]
KIND = {"question_type": "what", "answer_type": "other", "question": "What?"}
NET = {**KIND, "question_id": 458752000, "image_id": 458752, "answers": TEN, "image": cell()}
RACE = {**KIND, "question_id": "2971475", "answers": ["race", "race", "bike"], "image": cell()}
PAIR = {"left_image": cell(), "right_image": cell("blue"), "question_id": "dev-850-0-0", "question": "A."}
GARDEN_CELL = {"bytes": GARDEN.read_bytes(), "path": "garden.png"}
REPOSITORIES = {
    "datasets/lmms-lab/GQA": {
        "testdev_balanced_instructions/testdev-00000-of-00001.parquet": table(*SUITS),
        "testdev_balanced_images/testdev-00000-of-00001.parquet": table(
            {"id": "n0", "image": cell()}, {"id": "n1", "image": GARDEN_CELL}
        ),
        "val_balanced_instructions/val-00000-of-00001.parquet": table({**SUIT, "id": "1"}),
        "val_balanced_images/val-00000-of-00001.parquet": table({"id": "1", "image": cell()}),
        "README.md": b"a card",
    },
    "datasets/lmms-lab/VQAv2": {
        "data/validation-00000-of-00002.parquet": table(NET, {**NET, "question_id": 458752001}),
        "data/validation-00001-of-00002.parquet": table({**NET, "image_id": 9, "image": cell("blue")}),
        "data/testdev-00000-of-00001.parquet": table({**NET, "answers": None}),
    },
    "datasets/lmms-lab/OK-VQA": {"data/val2014-00000-of-00001.parquet": table(RACE)},
    "datasets/lmms-lab/NLVR2": {
        "data/balanced_dev-00000-of-00001-54ed883ce96f619e.parquet": table({**PAIR, "answer": "True"})
    },
    "datasets/own/odd": {
        "default/marks/0000.parquet": table(
            *(
                {**RACE, "question_id": name, "image": cell(color)}
                for name, color in {"a_b": "red", "a/b": "lime", "a.b": "blue", "a b": "white"}.items()
            )
        ),
        "a/test-00000-of-00001.parquet": table(RACE),
        "data/train2014-00000-of-00001.parquet": b"no table",
        "data/evil.parquet": table({**RACE, "question_id": "../../../../evil"}),
        "data/val2014.parquet": table({**RACE, "question_id": "2", "image": {"bytes": None, "path": "x"}}),
    },
}
OKVQA = "okvqa hf://lmms-lab/OK-VQA val2014"
RED, BLUE = [255, 0, 0], [0, 0, 255]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with serve_hub(tmp_path / "cache", REPOSITORIES) as served:
        yield served


def read(hub: Hub, *asked: str, limit: int = 9, missing: str = "", **variables: str) -> list[Any]:
    """Opens data sets in a process of its own: for each, its examples, or its error's line."""
    command = [sys.executable, "-c", READ, str(limit), missing, *asked]
    environment = {**hub.environment, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    results: list[Any] = json.loads(done.stdout)
    return results


def fetched(hub: Hub) -> list[str]:
    return [
        request.split("/resolve/")[1].split("/", 1)[1] for request in hub.asked if request.startswith("GET /datasets/")
    ]


def test_gqa_keeps_its_pictures_and_what_its_metrics_need(hub: Hub) -> None:
    ((first, *others),) = read(hub, "gqa hf://lmms-lab/GQA testdev_balanced")
    assert len(others) == 2 and (first["id"], first["gold"], first["cluster"]) == ("00", ["suit"], "n1")
    assert first["groups"]["detailed"] == "categoryThat"
    assert first["record"]["entailed"] == ["14199180", "14199179"]
    assert first["groups"]["steps"] == "2"
    assert first["seen"] != [RED] and COMMIT in first["paths"][0]
    assert all(name.startswith("testdev_balanced_") for name in fetched(hub)), "nothing else is fetched"


def test_vqav2_is_fetched_no_further_than_it_is_read(hub: Hub) -> None:
    ((first, second),) = read(hub, "vqav2 hf://lmms-lab/VQAv2 val2014", limit=2)
    assert (first["id"], first["gold"], first["cluster"]) == ("458752000", ["net"] * 10, "458752")
    assert first["groups"] == {"question_type": "what", "answer_type": "other"}
    assert first["paths"] == second["paths"], "one file for one photograph"
    assert fetched(hub) == ["data/validation-00000-of-00002.parquet"]
    whole, hidden = read(hub, "vqav2 hf://lmms-lab/VQAv2 validation", "vqav2 hf://lmms-lab/VQAv2 test-dev2015")
    assert [row["seen"] for row in whole] == [[RED], [RED], [BLUE]]
    assert hidden[0]["gold"] == []


def test_other_data_sets_keep_their_answers_pictures_and_groups(hub: Hub) -> None:
    (okay,), (pair,) = read(hub, OKVQA, "nlvr2 hf://lmms-lab/NLVR2@refs/convert/parquet balanced_dev")
    assert (okay["id"], okay["gold"], okay["seen"]) == ("2971475", ["race", "race", "bike"], [RED])
    assert (pair["gold"], pair["seen"]) == (["yes"], [RED, BLUE])
    assert (pair["cluster"], pair["group"]) == ("dev-850", "dev-850--0")


def test_what_was_read_once_needs_no_network(hub: Hub) -> None:
    (before,) = read(hub, OKVQA)
    hub.down = True
    assert read(hub, OKVQA) == [before] and len(before) == 1
    hub.asked.clear()
    assert read(hub, OKVQA, HF_HUB_OFFLINE="1") == [before] and hub.asked == []


def test_the_names_in_a_table_never_lead_out_of_the_cache_and_share_no_file(hub: Hub) -> None:
    (first,), rows = read(hub, "okvqa hf://own/odd evil", "okvqa hf://own/odd marks")
    assert Path(first["paths"][0]).resolve().is_relative_to(hub.cache / "assets")
    assert not list(hub.cache.parent.rglob("evil*.jpg"))
    assert len({str(row["paths"]) for row in rows}) == len({str(row["seen"]) for row in rows}) == 4


def test_what_cannot_be_read_is_said_in_one_line(hub: Hub) -> None:
    wanted = {
        "gqa hf://GQA testdev_balanced": "'hf://GQA' is no address on the hub. Give hf://OWNER/NAME",
        "gqa hf://../x testdev_balanced": "../x can be no name on the hub",
        "gqa hf://own/none testdev_balanced": "no data set own/none at main to give: 404",
        "gqa hf://lmms-lab/GQA train_all": "of the split 'train_all'. There are: testdev_balanced, val_balanced.",
        "gqa hf://lmms-lab/GQA val_balanced": "picture 2383860 is not among those given",
        "vqav2 hf://lmms-lab/OK-VQA val2014": "Record 1 of lmms-lab/OK-VQA is not one of VQAv2: it has no 'image_id'",
        "okvqa hf://own/odd val2014": "Record 1 of own/odd is not one of OK-VQA: 2 has no picture",
        "okvqa hf://own/odd train": "Cannot read data/train2014-00000-of-00001.parquet of own/odd",
        "covr hf://own/odd test": "COVR is not read from the hub",
    }
    for words, message in zip(wanted.values(), read(hub, *wanted), strict=True):
        assert isinstance(message, str) and words in message and "\n" not in message


def test_without_network_or_pyarrow_or_with_damage_it_is_told(hub: Hub) -> None:
    hub.down = True
    assert read(hub, OKVQA)[0].startswith("lmms-lab/OK-VQA is not on this machine: ")
    assert "HF_HUB_OFFLINE" in read(hub, OKVQA, HF_HUB_OFFLINE="1")[0]
    hub.down, hub.damages = False, True
    assert read(hub, OKVQA)[0].startswith("data/val2014-00000-of-00001.parquet of lmms-lab/OK-VQA came damaged.")
    hub.damages = False
    assert read(hub, OKVQA, missing="pyarrow") == ["Tables of the hub need pyarrow. pip install 'codevqa[hub]'"]
    assert len(read(hub, OKVQA)[0]) == 1
