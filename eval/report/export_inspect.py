"""A run as a log of inspect_ai (``NAME.eval``), which ``inspect view`` shows and ``read_eval_log`` reads.

Each question is a sample. Its messages are the question, the program with its calls as calls of tools, what each
returned, and the answer. Pictures are named, not put in. The format is version 2, a zip archive of JSON.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from ..run.run_info import RunInfo
from ..run.store import Store
from ..statistics import standard_error
from ..task import Example, Job, Row
from .export_scores import began, metric_key, metric_of, model_name

__all__ = ["write"]

VERSION = 2
SHORT = ("id", "epoch", "input", "target", "scores", "metadata", "model_usage", "total_time", "uuid")
"""What the list of samples shows of each."""


def write(store: Store, jobs: Sequence[Job], path: Path) -> int:
    """Writes one method and repetition of a run; see :data:`codevqa.eval.report.exports.FORMATS`."""
    ((method, repeat),) = jobs
    info, metric, key = store.info, metric_of(store), metric_key(store.info)
    count = store.counts()[method, repeat]
    spec = _spec(info, count, method, repeat)
    plan = {"name": "plan", "steps": [{"solver": method, "params": {}}], "config": {}}
    scores: list[float] = []
    clusters: list[str] = []
    used: Counter[str] = Counter()
    short = []
    with ZipFile(path, "w", ZIP_DEFLATED) as log:

        def put(name: str, value: Any) -> None:
            log.writestr(name, json.dumps(value, ensure_ascii=False))

        put("_journal/start.json", {"version": VERSION, "eval": spec, "plan": plan})
        for example, row in store.pairs(method, repeat):
            score = metric.score(example, row.prediction) if metric else None
            sample = _sample(example, row, spec, {} if score is None else {key: score})
            put(f"samples/{example.id}_epoch_1.json", sample)
            short.append({name: sample[name] for name in SHORT} | {"completed": True})
            if score is not None:
                scores.append(score)
                clusters.append(example.cluster or example.id)
            used.update(sample["model_usage"][spec["model"]])
        put("summaries.json", short)
        results: dict[str, Any] = {"total_samples": count, "completed_samples": count, "scores": []}
        if metric and scores:
            figures = dict(zip(("accuracy", "stderr"), standard_error(scores, clusters), strict=True))
            metrics = {name: {"name": name, "value": value, "params": {}} for name, value in figures.items()}
            scored = {"scored_samples": len(scores), "unscored_samples": count - len(scores)}
            results["scores"] = [
                {"name": key, "scorer": key, "params": {"metric": metric.name}, "metrics": metrics, **scored}
            ]
        ended = max(began(info), datetime.fromtimestamp(store.path.stat().st_mtime, UTC)).isoformat(timespec="seconds")
        stats = {"started_at": spec["created"], "completed_at": ended, "model_usage": {spec["model"]: used}}
        header = {"version": VERSION, "status": "success", "eval": spec, "plan": plan, "results": results}
        put("header.json", header | {"stats": stats})
    return count


def _spec(info: RunInfo, count: int, method: str, repeat: int) -> dict[str, Any]:
    id = hashlib.sha256(f"{info.to_json()} {method} {repeat}".encode()).hexdigest()[:22]
    return {
        "eval_id": id,
        "run_id": id,
        "task_id": id,
        "created": began(info).isoformat(timespec="seconds"),
        "task": f"{info.dataset}_{info.split}",
        "task_display_name": f"{info.data_name} {info.split}",
        "dataset": {"name": info.data_name, "location": info.data, "samples": count, "shuffled": False},
        "model": model_name(info),
        "model_roles": {role: {"model": model, "config": {}, "args": {}} for role, model in info.models.items()},
        "config": {"epochs": 1, "limit": info.limit},
        "packages": {"codevqa": info.version},
        "metadata": {
            "method": method,
            "seed": info.seeds[repeat],
            "prompts": info.prompts,
            "prompt_hash": info.prompt_hash,
            "data_hash": info.data_hash,
            "machine": info.machine,
            "settings": dict(info.settings),
        },
    }


def _sample(example: Example, row: Row, spec: Mapping[str, Any], scores: Mapping[str, float]) -> dict[str, Any]:
    messages = list(_messages(example, row, spec["model"]))
    usage = _usage(row)
    return {
        "id": example.id,
        "epoch": 1,
        "input": example.question,
        "target": list(example.gold),
        "messages": messages,
        "output": {
            "model": spec["model"],
            "choices": [{"message": messages[-1], "stop_reason": "stop"}],
            "usage": usage,
            "time": row.seconds,
        },
        "scores": {
            name: {"value": value, "answer": row.prediction, "explanation": row.program}
            for name, value in scores.items()
        },
        "metadata": {
            "pictures": [image.name for image in example.images],
            **example.groups,
            "fallback": row.fallback,
            # Not inspect's own error of a sample, which leaves it out of the figures: here it counts as wrong.
            "error": row.error and f"{row.error}: {row.message}",
        },
        "store": {},
        "events": [],
        "model_usage": {spec["model"]: usage},
        "total_time": row.seconds,
        "uuid": f"{spec['eval_id']}-{example.id}",
        "attachments": {},
    }


def _messages(example: Example, row: Row, model: str) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": example.question, "source": "input"}
    if row.program is not None:
        calls = row.trace.get("calls", ())
        ids = [f"call-{number}" for number, _ in enumerate(calls, 1)]
        asked = [
            {"id": id, "function": call["name"], "arguments": call["arguments"], "type": "function"}
            for id, call in zip(ids, calls, strict=True)
        ]
        said = {"role": "assistant", "content": f"```python\n{row.program}\n```", "model": model}
        yield said | {"source": "generate"} | ({"tool_calls": asked} if asked else {})
        for id, call in zip(ids, calls, strict=True):
            shown = call["error"]["message"] if call["error"] else json.dumps(call["value"], ensure_ascii=False)
            yield {"role": "tool", "content": shown, "tool_call_id": id, "function": call["name"]}
    yield {"role": "assistant", "content": row.prediction, "model": model, "source": "generate"}


def _usage(row: Row) -> dict[str, int]:
    read, written = (row.cost.prompt_tokens, row.cost.completion_tokens) if row.cost else (0, 0)
    return {"input_tokens": read, "output_tokens": written, "total_tokens": read + written or row.tokens}
