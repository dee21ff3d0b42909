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

from ...core.errors import UnknownNameError
from ..metrics import Metric
from ..run.run_info import RunInfo
from ..run.store import Store
from ..statistics import standard_error
from ..task import Example, Job, Row
from .reading import metric_of

__all__ = ["known_metric", "write"]

SHORT = ("id", "epoch", "input", "target", "scores", "metadata", "model_usage", "total_time", "uuid")
"""What the list of samples shows of each."""


def known_metric(info: RunInfo) -> Metric | None:
    """Returns the run's metric; None for a data set of the user's own, whose rows are written without scores."""
    try:
        return metric_of(info)
    except UnknownNameError:
        return None


def write(store: Store, jobs: Sequence[Job], path: Path) -> int:
    """Writes one method and repetition of a run; see :data:`codevqa.eval.report.exports.FORMATS`."""
    ((method, repeat),) = jobs
    info, metric, count = store.info, known_metric(store.info), store.counts()[method, repeat]
    key = "vqa_score" if info.dataset in ("vqav2", "okvqa") else "exact_match"
    spec = _spec(info, count, method, repeat)
    plan = {"name": "plan", "steps": [{"solver": method, "params": {}}], "config": {}}
    start = {"version": 2, "eval": spec, "plan": plan}
    scores: list[float] = []
    clusters: list[str] = []
    used: Counter[str] = Counter()
    short = []
    with ZipFile(path, "w", ZIP_DEFLATED) as log:

        def put(name: str, value: Any) -> None:
            log.writestr(name, json.dumps(value, ensure_ascii=False))

        put("_journal/start.json", start)
        for example, row in store.pairs(method, repeat):
            score = metric.score(example, row.prediction) if metric else None
            if score is not None:
                scores.append(score)
                clusters.append(example.cluster or example.id)
            sample = _sample(example, row, spec, {} if score is None else {key: score})
            put(f"samples/{example.id}_epoch_1.json", sample)
            short.append({name: sample[name] for name in SHORT} | {"completed": True})
            used.update(sample["output"]["usage"])
        put("summaries.json", short)
        results: dict[str, Any] = {"total_samples": count, "completed_samples": count, "scores": []}
        if metric and scores:
            figures = dict(zip(("accuracy", "stderr"), standard_error(scores, clusters), strict=True))
            metrics = {name: {"name": name, "value": value, "params": {}} for name, value in figures.items()}
            scored = {"scored_samples": len(scores), "unscored_samples": count - len(scores)}
            about = {"name": key, "scorer": key, "params": {"metric": metric.name}}
            results["scores"] = [{**about, "metrics": metrics, **scored}]
        changed = datetime.fromtimestamp(store.path.stat().st_mtime, UTC).isoformat(timespec="seconds")
        stats = {"started_at": spec["created"], "completed_at": max(changed, spec["created"])}
        stats["model_usage"] = {spec["model"]: used}
        put("header.json", {**start, "status": "success", "results": results, "stats": stats})
    return count


def _spec(info: RunInfo, count: int, method: str, repeat: int) -> dict[str, Any]:
    began = datetime.fromisoformat(info.started) if info.started else datetime.fromtimestamp(0, UTC)
    id = hashlib.sha256(f"{info.to_json()} {method} {repeat}".encode()).hexdigest()[:22]
    return {
        "eval_id": id,
        "run_id": id,
        "task_id": id,
        "created": began.isoformat(timespec="seconds"),
        "task": f"{info.dataset}_{info.split}",
        "task_display_name": f"{info.data_name} {info.split}",
        "dataset": {"name": info.data_name, "location": info.data, "samples": count, "shuffled": False},
        "model": f"codevqa/{info.preset or 'own'}",
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
    model = spec["model"]
    messages = list(_messages(example, row, model))
    read, written = (row.cost.prompt_tokens, row.cost.completion_tokens) if row.cost else (0, 0)
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written or row.tokens}
    choices = [{"message": messages[-1], "stop_reason": "stop"}]
    said = {"answer": row.prediction, "explanation": row.program}
    return {
        "id": example.id,
        "epoch": 1,
        "input": example.question,
        "target": list(example.gold),
        "messages": messages,
        "output": {"model": model, "choices": choices, "usage": usage, "time": row.seconds},
        "scores": {name: {"value": value, **said} for name, value in scores.items()},
        "metadata": {
            "pictures": [image.name for image in example.images],
            **example.groups,
            "fallback": row.fallback,
            # Not inspect's own error of a sample, which leaves it out of the figures: here it counts as wrong.
            "error": row.error and f"{row.error}: {row.message}",
        },
        "store": {},
        "events": [],
        "model_usage": {model: usage},
        "total_time": row.seconds,
        "uuid": f"{spec['eval_id']}-{example.id}",
        "attachments": {},
    }


def _messages(example: Example, row: Row, model: str) -> Iterator[dict[str, Any]]:
    yield {"role": "user", "content": example.question, "source": "input"}
    if row.program is not None:
        calls = [(f"call-{number}", call) for number, call in enumerate(row.trace.get("calls", ()), 1)]
        asked = [
            {"id": id, "function": call["name"], "arguments": call["arguments"], "type": "function"}
            for id, call in calls
        ]
        said = {"role": "assistant", "content": f"```python\n{row.program}\n```", "model": model}
        yield said | {"source": "generate"} | ({"tool_calls": asked} if asked else {})
        for id, call in calls:
            shown = call["error"]["message"] if call["error"] else json.dumps(call["value"], ensure_ascii=False)
            yield {"role": "tool", "content": shown, "tool_call_id": id, "function": call["name"]}
    yield {"role": "assistant", "content": row.prediction, "model": model, "source": "generate"}
