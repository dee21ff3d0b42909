"""Where the time goes: of all that runs while many questions are answered at once.

    python benchmarks/where_time_goes.py mini            the mini models end to end, on the CPU
    python benchmarks/where_time_goes.py large           BLIP-large sizes, language models replayed (GPU)

Prints how long each model was busy of the wall time, what the event loop's thread was doing (sampled), and the
operators or GPU kernels that took longest by PyTorch's profiler. ``--profile-pictures`` bounds what is profiled, as the
profiler keeps every event; shares and samples come from an unprofiled run before it.
"""

from __future__ import annotations

import argparse
import collections
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from random_blip import ReplayedReader, ReplayedWriter, engine, fresh_pictures, networks, questions, served
from speed import drawn

from codevqa import CodeVQA, Question
from codevqa.presets.presets import preset


class Busy:
    """How long methods ran, by wrapping them where they are."""

    def __init__(self) -> None:
        self.seconds: collections.defaultdict[str, float] = collections.defaultdict(float)
        self.calls: collections.Counter[str] = collections.Counter()
        self.rows: collections.Counter[str] = collections.Counter()

    def clear(self) -> None:
        """Forgets what was counted."""
        self.seconds.clear()
        self.calls.clear()
        self.rows.clear()

    def watch(self, thing: Any, method: str) -> None:
        """Counts the time of a method that takes a sequence of requests; call it on a class, before it is used."""
        inner: Callable[..., Any] = getattr(thing, method)
        name = f"{thing.__name__}.{method}"

        def timed(of: Any, requests: Sequence[Any]) -> Any:
            start = time.perf_counter()
            try:
                return inner(of, requests)
            finally:
                self.seconds[name] += time.perf_counter() - start
                self.calls[name] += 1
                self.rows[name] += len(requests)

        setattr(thing, method, timed)


class Samples:
    """Looks every few milliseconds at what a thread is doing."""

    def __init__(self, thread_name: str, every: float = 0.003) -> None:
        self.seen: collections.Counter[str] = collections.Counter()
        self._name, self._every = thread_name, every
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stop.wait(self._every):
            frames = sys._current_frames()
            for thread in threading.enumerate():
                if thread.name == self._name and thread.ident in frames:
                    self.seen[place(frames[thread.ident])] += 1


def place(frame: FrameType | None) -> str:
    """Returns the innermost function of this library on a stack, and the file's name where there is none."""
    innermost = f"waiting, or elsewhere: {Path(frame.f_code.co_filename).name} {frame.f_code.co_name}" if frame else ""
    while frame is not None:
        if "codevqa" in Path(frame.f_code.co_filename).parts and "loop.py" not in frame.f_code.co_filename:
            return f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"
        frame = frame.f_back
    return innermost


def workload(options: argparse.Namespace) -> tuple[CodeVQA, Callable[[int, int], list[Question]]]:
    """Returns an engine, and a function of (pictures, seed) that makes questions for it."""
    if options.workload == "mini":
        settings = replace(preset("mini").settings, workers=options.at_once)
        return CodeVQA.from_preset("mini", settings=settings), lambda pictures, seed: [
            Question(picture, text) for picture, text in drawn(pictures, options.questions, seed)
        ]

    def asked(pictures: int, seed: int) -> list[Question]:
        texts = questions(seed)
        shown = fresh_pictures(pictures, seed)
        return [Question(one, next(texts)) for one in shown for _ in range(options.questions)]

    matching, captioning = (served(one) for one in networks(options.size, options.device))
    return engine(matching, captioning, at_once=options.at_once, batch=options.batch), asked


def main() -> None:
    """Runs the workload and prints the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu = torch.cuda.is_available()
    parser.add_argument("workload", choices=["mini", "large"])
    parser.add_argument("--size", default="large", choices=["tiny", "base", "large"])
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--pictures", type=int, default=128 if gpu else 8)
    parser.add_argument("--profile-pictures", type=int, default=32 if gpu else 4)
    parser.add_argument("--questions", type=int, default=8, help="questions a picture")
    parser.add_argument("--at-once", type=int, default=256 if gpu else 16)
    parser.add_argument("--batch", type=int, help="rows in one batch at most; each model's own choice if left out")
    parser.add_argument("--rows", type=int, default=18, help="entries of each table")
    options = parser.parse_args()
    from codevqa.models.blip import BlipCaptioner, BlipMatcher
    from codevqa.models.causal_lm import TransformersLM

    busy = Busy()
    for thing, methods in (
        (BlipMatcher, ("match", "similarity")),
        (BlipCaptioner, ("caption",)),
        (TransformersLM, ("generate",)),
        (ReplayedReader, ("generate",)),
        (ReplayedWriter, ("generate",)),
    ):
        for method in methods:
            busy.watch(thing, method)
    vqa, asked = workload(options)
    with vqa:
        vqa.ask_many(asked(max(2, options.pictures // 2), 1))
        busy.clear()
        items = asked(options.pictures, 2)
        with Samples("codevqa") as samples:
            start = time.perf_counter()
            vqa.ask_many(items)
            wall = time.perf_counter() - start
        print(f"{len(items)} questions in {wall:.2f} s: {1000 * wall / len(items):.2f} ms a question")
        print("\nmodels, each in a thread of its own: share of the wall time, batches, rows")
        for name, seconds in sorted(busy.seconds.items(), key=lambda one: -one[1]):
            rows = busy.rows[name]
            shown = f"{busy.calls[name]:6d} batches {rows:7d} rows {1000 * seconds / max(rows, 1):8.3f} ms a row"
            print(f"  {seconds / wall:6.1%} {name:28}{shown}")
        print("\nthe event loop's thread, sampled")
        total = max(1, sum(samples.seen.values()))
        for name, count in samples.seen.most_common(options.rows):
            print(f"  {count / total:6.1%} {name}")
        if options.profile_pictures:
            profiled(vqa, asked(options.profile_pictures, 3), options)


def profiled(vqa: CodeVQA, items: list[Question], options: argparse.Namespace) -> None:
    """Prints the operators, or kernels, that took longest."""
    cuda = options.device.startswith("cuda") and options.workload == "large"
    activities = [torch.profiler.ProfilerActivity.CUDA] if cuda else [torch.profiler.ProfilerActivity.CPU]
    # The models run in threads of their own; kernels are seen whoever launches them.
    config = None if cuda else torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(activities=activities, experimental_config=config) as profile:
        vqa.ask_many(items)
        if cuda:
            torch.cuda.synchronize()
    order = "self_device_time_total" if cuda else "self_cpu_time_total"
    averages = profile.key_averages()
    averages.sort(key=lambda one: getattr(one, order), reverse=True)
    total = sum(getattr(one, order) for one in averages) or 1.0
    print(f"\n{'GPU kernels' if cuda else 'operators'}, by PyTorch's profiler, {total / 1e6:.2f} s in all")
    for one in averages[: options.rows]:
        spent = getattr(one, order)
        print(f"  {spent / total:6.1%} {spent / 1000:10.1f} ms {one.count:8d} x  {one.key[:90]}")


if __name__ == "__main__":
    main()
