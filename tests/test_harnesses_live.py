"""inspect_ai and lmms-eval themselves: the first reads what we export, and both ask CodeVQA as one of their models.

``CODEVQA_HARNESSES`` names the python of an environment that has them beside what CodeVQA needs; the code is ours.
"""

from __future__ import annotations

import configparser
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli_kit import ROOT
from eval_kit import Numbered

from codevqa.eval.report.exports import export
from codevqa.eval.run.run_info import RunInfo
from codevqa.eval.run.store import Store
from codevqa.eval.task import Row

PYTHON = os.environ.get("CODEVQA_HARNESSES", "")
PICTURES = ROOT / "examples" / "pictures"
ASKED = [
    ("garden", "Is the red house to the left of the green tree?"),
    ("garden", "Is there a yellow flower and a blue cloud?"),
    ("harbor", "Is there a green boat or an orange fish?"),
    ("harbor", "What color is the flag?"),
    ("shelf-1", "Is there a purple cup?"),
]
READ_INSPECT = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries
path = sys.argv[1]
log, short = read_eval_log(path), read_eval_log_sample_summaries(path)
one = read_eval_log_sample(path, "000001", 1)
print(json.dumps({
    "status": log.status, "model": log.eval.model, "accuracy": log.results.scores[0].metrics["accuracy"].value,
    "scores": [sample.scores["exact_match"].as_float() for sample in log.samples], "short": [s.id for s in short],
    "messages": [[message.role, message.text] for message in one.messages], "completion": one.output.completion,
    "calls": [call.function for message in one.messages for call in getattr(message, "tool_calls", None) or ()],
}))
"""
ASK_INSPECT = """
import json, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText
from inspect_ai.scorer import exact
logs, asked = sys.argv[1], json.loads(sys.argv[2])
def sample(path, question):
    content = [ContentImage(image=path), ContentText(text=question + "\\nIn one word.")]
    return Sample([ChatMessageUser(content=content)], target="yes")

task = Task(dataset=[sample(*one) for one in asked], scorer=exact())
eval(task, model="codevqa/mini", model_args={"query.captions": 3}, log_dir=logs, display="none")
log = read_eval_log(list_eval_logs(logs)[0])
found = [(one.output.completion, one.output.usage.total_tokens, one.output.metadata) for one in log.samples]
print(json.dumps({"status": log.status, "error": str(log.error), "samples": found}))
"""
TASK = """
task: codevqa_pictures
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_visual: !function utils.pictures
doc_to_text: !function utils.prompt
doc_to_target: answer
process_results: !function utils.score
generation_kwargs: {{max_new_tokens: 16}}
metric_list: [{{metric: right, aggregation: mean, higher_is_better: true}}]
"""
UTILS = """
from PIL import Image
def pictures(doc): return [Image.open(doc["picture"]).convert("RGB")]
def prompt(doc): return doc["question"] + "\\nAnswer the question using a single word or phrase."
def score(doc, results): return {"right": float(results[0] == doc["answer"])}
"""
Run: TypeAlias = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs python there, with this tree's code and entry points; a harness that is missing skips the test."""
    about = configparser.ConfigParser()
    about.read(ROOT / "setup.cfg", encoding="utf-8")
    info = tmp_path / "installed" / "codevqa-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: codevqa\nVersion: 0\n")
    groups = about["options.entry_points"].items()
    (info / "entry_points.txt").write_text("".join(f"[{name}]{value}\n" for name, value in groups))
    variables = {"PYTHONPATH": os.pathsep.join((str(info.parent), str(ROOT))), "HF_HOME": str(tmp_path / "hub")}

    def there(harness: str, *words: str) -> str:
        if not PYTHON:
            pytest.skip("CODEVQA_HARNESSES names no python")
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
        environment = {**os.environ, **variables, **offline}
        done = subprocess.run(
            [PYTHON, *words], capture_output=True, text=True, timeout=590, env=environment, cwd=tmp_path, check=False
        )
        if f"No module named '{harness}'" in done.stderr or f"No module named {harness}" in done.stderr:
            pytest.skip(f"{PYTHON} has no {harness}")
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    return there


@pytest.fixture
def store(tmp_path: Path) -> Store:
    calls = [{"name": "query", "arguments": {"question": "Is it red?"}, "value": "yes", "error": None}]
    info = RunInfo("gqa", "val", ("codevqa",), "mini", {"writer": "w"}, started="2026-11-23T02:15:00+00:00")
    store = Store.create(tmp_path / "run", info)
    for place, (example, said) in enumerate(zip(Numbered(tmp_path, 3), ("yes", "no", ""), strict=True)):
        error = None if said else "ServerError"
        row = Row(example.id, "codevqa", 0, said, False, error, "", "answer = 1", {"calls": calls}, 0.5, 9)
        store.add(example, [row], place=place)
    return store


def last(text: str) -> Any:
    return json.loads(text.strip().splitlines()[-1])


@pytest.mark.slow
def test_inspect_cannot_read_our_log(run: Run, store: Store, tmp_path: Path) -> None:
    with store:
        export(store, "inspect", tmp_path / "run.eval")
    assert last(run("inspect_ai", "-c", READ_INSPECT, str(tmp_path / "run.eval"))) == {
        "status": "success",
        "model": "codevqa/mini",
        "accuracy": 1 / 3,
        "scores": [1.0, 0.0, 0.0],
        "short": ["000000", "000001", "000002"],
        "messages": [
            ["user", "Is thing 1 red?"],
            ["assistant", "```python\nanswer = 1\n```"],
            ["tool", '"yes"'],
            ["assistant", "no"],
        ],
        "completion": "no",
        "calls": ["query"],
    }


@pytest.mark.slow
def test_inspect_cannot_ask(run: Run, tmp_path: Path) -> None:
    asked = json.dumps([(str(PICTURES / f"{name}.png"), question) for name, question in ASKED])
    found = last(run("inspect_ai", "-c", ASK_INSPECT, str(tmp_path / "logs"), asked))
    assert found["status"] == "success", found
    assert [about["question"] for *_, about in found["samples"]] == [question for _, question in ASKED]
    assert all(said == about["answer"] and tokens > 20 for said, tokens, about in found["samples"])
    assert all(about["program"] and about["calls"] for *_, about in found["samples"]), found


@pytest.mark.slow
def test_lmms_eval_cannot_ask(run: Run, tmp_path: Path) -> None:
    task, rows = tmp_path / "task", tmp_path / "rows.jsonl"
    task.mkdir()
    (task / "codevqa_pictures.yaml").write_text(TASK.format(rows=rows))
    (task / "utils.py").write_text(UTILS)
    docs = [{"picture": str(PICTURES / f"{name}.png"), "question": text, "answer": "yes"} for name, text in ASKED]
    rows.write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    words = ("--model", "codevqa", "--model_args", "preset=mini,query.captions=3", "--tasks", "codevqa_pictures")
    out = ("--include_path", str(task), "--output_path", str(tmp_path / "out"), "--log_samples")
    run("lmms_eval", "-m", "lmms_eval", *words, *out)
    (written,) = (tmp_path / "out").rglob("*_samples_codevqa_pictures.jsonl")
    said = [json.loads(line)["filtered_resps"] for line in written.read_text().splitlines()]
    assert len(said) == len(ASKED) and all(said)
