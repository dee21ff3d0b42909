"""A run as lmms-eval leaves it in ``--output_path``: what it compares with (``--baseline``) and its viewers open.

::

    codevqa__mini/20261123_021500_results.json      results, configs, n-samples, ... by task
    codevqa__mini/20261123_021500_samples_gqa.jsonl  a row a question, beside its columns with program and error
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..run.store import Store
from ..statistics import standard_error
from ..task import Example, Job, Row
from .export_scores import began, metric_key, metric_of, model_name, target

__all__ = ["write"]

TASKS = {"gqa": "gqa", "vqav2": "vqav2_val", "okvqa": "ok_vqa_val2014"}
"""What lmms-eval calls data sets that it has too."""


def write(store: Store, jobs: Sequence[Job], path: Path) -> int:
    """Writes one method and repetition of a run; see :data:`codevqa.eval.report.exports.FORMATS`."""
    info = store.info
    task, key, metric = TASKS.get(info.dataset, info.dataset), metric_key(info), metric_of(store)
    model = model_name(info).replace("/", "__")
    stem = path / model / f"{began(info):%Y%m%d_%H%M%S}"
    stem.parent.mkdir(parents=True)
    scores: list[float] = []
    clusters: list[str] = []
    hashes = hashlib.sha256()
    ((method, repeat),) = jobs
    with Path(f"{stem}_samples_{task}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for number, (example, row) in enumerate(store.pairs(method, repeat)):
            score = metric.score(example, row.prediction) if metric else None
            sample = _sample(number, example, row) | {key: score}
            hashes.update(f"sample_{number}{sample['doc_hash']}".encode())
            if score is not None:
                scores.append(score)
                clusters.append(example.cluster or example.id)
            file.write(json.dumps(sample, ensure_ascii=False) + "\n")
    count = store.counts()[method, repeat]
    found: dict[str, Any] = {"alias": task}
    if scores:
        found[f"{key},none"], found[f"{key}_stderr,none"] = standard_error(scores, clusters)
    results = {
        "results": {task: found},
        "group_subtasks": {task: []},
        "configs": {task: {"task": task, "test_split": info.split, "metadata": {"metric": metric and metric.name}}},
        "versions": {task: info.version},
        "n-shot": {task: 0},
        "higher_is_better": {task: {key: True}},
        "n-samples": {task: {"original": count, "effective": count}},
        "config": {"model": "codevqa", "model_args": f"preset={info.preset},method={method}", "limit": info.limit},
        "date": stem.name,
        "task_hashes": {task: hashes.hexdigest()},
        "model_source": "codevqa",
        "model_name": model_name(info),
        "model_name_sanitized": model,
    }
    Path(f"{stem}_results.json").write_text(json.dumps(results, indent=2, ensure_ascii=False), encoding="utf-8")
    return count


def _sample(number: int, example: Example, row: Row) -> dict[str, Any]:
    about = {"question_id": example.id, "question": example.question, "answer": list(example.gold)}
    return {
        "doc_id": number,
        "target": target(example),
        "filtered_resps": row.prediction,
        "doc_hash": hashlib.sha256(json.dumps(about, ensure_ascii=False).encode()).hexdigest(),
        "input": example.question,
        "question_id": example.id,
        "image_ids": [image.name for image in example.images],
        "num_images": len(example.images),
        "answers": list(example.gold),
        "groups": dict(example.groups),
        "program": row.program,
        "error": row.error,
        "fallback": row.fallback,
    }
