"""Several processes that answer questions at once, each with an engine of its own over its share of the pictures.

A question costs Python a good part of what it costs a GPU, so one process does not keep a GPU busy. All start at the
same moment: when each has loaded its models, made its pictures and warmed up.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import Any

from codevqa import CodeVQA, Question

Found = dict[str, Any]
_barrier: Any = None


def keep(barrier: Any) -> None:
    """Gives a process the barrier at which all meet."""
    global _barrier
    _barrier = barrier


def start() -> float:
    """Returns the time of day when all processes are ready."""
    _barrier.wait()
    return time.time()


def together(work: Sequence[Callable[[], Found]]) -> tuple[float, list[Found]]:
    """Runs each piece of work in a process of its own; one that fails ends all.

    Args:
        work: what to run; it calls :func:`start` when it is ready and returns the times ``began`` and ``ended``.

    Returns:
        The seconds until the last ended, and what each found.
    """
    context = get_context("spawn")
    barrier = context.Barrier(len(work))
    with ProcessPoolExecutor(len(work), context, keep, (barrier,)) as pool:
        running = [pool.submit(one) for one in work]
        try:
            found = [one.result() for one in as_completed(running)]
        except BaseException:
            barrier.abort()
            raise
    return max(one["ended"] for one in found) - max(one["began"] for one in found), found


def counts(vqa: CodeVQA) -> dict[str, int]:
    """Returns what the models have done so far."""
    matcher, captioner = vqa.models.matcher.stats, vqa.models.captioner.stats  # type: ignore[union-attr]
    return {
        "matcher's vision forwards": matcher.vision_forwards,
        "captioner's vision forwards": captioner.vision_forwards,
        "texts matched": matcher.text_rows,
        "captions": captioner.text_rows,
    }


def share(options: argparse.Namespace, number: int, pictures: int, gpu: int | None) -> Found:
    """Answers the questions about one process's share of the pictures."""
    if gpu is not None:
        seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        os.environ["CUDA_VISIBLE_DEVICES"] = seen.split(",")[gpu] if seen else str(gpu)
    from random_blip import engine, fresh_pictures, networks, questions, served

    # At Python's five milliseconds, a thread that launches GPU work waits for one that computes.
    sys.setswitchinterval(0.0005)
    query = options.command == "query"
    each = 1 if query else options.questions

    def ask(vqa: CodeVQA, items: list[Question]) -> list[str]:
        answers = vqa.ask_many(items, method="pnpvqa" if query else "codevqa")
        return [f"{answer.question}: {answer.error}" for answer in answers if answer.error is not None]

    def asked(count: int, seed: int) -> list[Question]:
        texts = questions(seed)
        return [Question(one, next(texts)) for one in fresh_pictures(count, seed) for _ in range(each)]

    models = map(served, networks(options.size, options.device))
    at_once, warm_up = (-(-whole // options.processes) for whole in (options.at_once, options.warm_up))
    with engine(*models, at_once=at_once) as vqa:
        ask(vqa, asked(warm_up, 1000 + number))
        items, before = asked(pictures, 2000 + number), counts(vqa)
        began = start()
        failed = ask(vqa, items)
        ended = time.time()
        done = {key: value - before[key] for key, value in counts(vqa).items()}
    return {"began": began, "ended": ended, "items": len(items), "failed": failed, "done": done}


def measured(options: argparse.Namespace, pictures: int) -> Found:
    """Runs the processes, so many on each GPU; returns what they did together over so many pictures a GPU."""
    gpus = range(options.gpus) if options.gpus > 1 else (None,)
    count, whole = len(gpus) * options.processes, len(gpus) * pictures
    work = [
        partial(
            share, options, number, whole * (number + 1) // count - whole * number // count, gpus[number % len(gpus)]
        )
        for number in range(count)
    ]
    seconds, found = together(work)
    items = sum(one["items"] for one in found)
    done = {key: round(sum(one["done"][key] for one in found) / items, 3) for key in found[0]["done"]}
    failed = [one for each in found for one in each["failed"]]
    return {"seconds": seconds, "items": items, "failed": len(failed), "first": failed[:1], "done for each": done}
