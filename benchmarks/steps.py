"""What each step written for a GPU is worth: the same work with PyTorch's operators, in turns, in the same processes.

    python benchmarks/steps.py [--seconds 170]

``query`` and ``mix`` are those of ``speed.py``: BLIP-large sizes, random weights, four processes. ``alone`` is one
question at a time in one process, the median of 16. A step stays for 5 % of one of the three. Needs a GPU.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from types import MappingProxyType
from typing import Any

import processes
import torch
from random_blip import engine, fresh_pictures, networks, questions, served

from codevqa.models.blip import captioner, matcher
from codevqa.models.blip.gpu import caption_decoder, kernels, text_encoder, vision_encoder

PROCESSES = 4
PICTURES = MappingProxyType({"query": 1024, "mix": 192})


def _plain_kernels(put: Callable[..., None]) -> None:
    put(kernels, "HERE", False)


def _unrecorded(put: Callable[..., None]) -> None:
    for module in (vision_encoder, text_encoder, caption_decoder):
        put(module, "enabled", lambda device: False)


def _captions_recorded(put: Callable[..., None]) -> None:
    for module in (vision_encoder, text_encoder):
        put(module, "enabled", lambda device: False)


def _one_stream(put: Callable[..., None]) -> None:
    for module in (matcher, captioner):
        put(module, "short_work", lambda device: nullcontext())


WITHOUT: Mapping[str, Callable[[Callable[..., None]], None]] = MappingProxyType(
    {
        "nothing": lambda put: None,
        "the attentions of caption tokens (Triton)": _plain_kernels,
        "CUDA graphs": _unrecorded,
        "CUDA graphs but for captions": _captions_recorded,
        "a stream for short work": _one_stream,
    }
)
_changed: dict[tuple[Any, str], Any] = {}


def _leave_out(name: str) -> None:
    """Leaves one step out in this process, and puts back what was left out before."""
    for (owner, attribute), value in _changed.items():
        setattr(owner, attribute, value)
    _changed.clear()

    def put(owner: Any, attribute: str, value: Any) -> None:
        _changed[owner, attribute] = getattr(owner, attribute)
        setattr(owner, attribute, value)

    WITHOUT[name](put)


def _share(name: str, command: str, number: int) -> processes.Found:
    _leave_out(name)
    options = argparse.Namespace(command=command, size="large", device="cuda", questions=8, batch=0)
    options.at_once, options.warm_up, options.processes = 768, 256, PROCESSES
    found = processes.share(options, number, PICTURES[command] // PROCESSES, None)
    gc.collect()
    torch.cuda.empty_cache()
    return found


def _alone(name: str) -> float:
    """Returns the milliseconds of one ``query`` that nothing else runs beside."""
    _leave_out(name)
    times, texts = [], questions(5)
    with engine(*map(served, networks("large", "cuda")), at_once=16) as vqa:
        for picture in fresh_pictures(24, 9):
            start = time.perf_counter()
            vqa.ask(picture, next(texts), method="pnpvqa")
            times.append(time.perf_counter() - start)
    gc.collect()
    torch.cuda.empty_cache()
    return 1000 * statistics.median(times[8:])


def main() -> None:
    """Measures every step in turns until the time is up, and prints the mean of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=170, help="time for query and mix")
    until = time.monotonic() + parser.parse_args().seconds
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    context = get_context("spawn")
    barrier = context.Barrier(PROCESSES)
    turns = [(command, name) for command in PICTURES for name in WITHOUT]
    with ProcessPoolExecutor(PROCESSES, context, processes.keep, (barrier,)) as pool:
        while time.monotonic() < until:
            for command, name in turns:
                shares = [one.result() for one in [pool.submit(_share, name, command, n) for n in range(PROCESSES)]]
                took = max(one["ended"] for one in shares) - max(one["began"] for one in shares)
                found[command, name].append(1000 * took / sum(one["items"] for one in shares))
            turns.reverse()
    with ProcessPoolExecutor(1, context) as pool:
        for name in [*WITHOUT, *WITHOUT]:
            found["alone", name].append(pool.submit(_alone, name).result())
    for command in (*PICTURES, "alone"):
        for name in WITHOUT:
            values = found[command, name]
            print(f"{command:6} without {name:45} {statistics.mean(values):8.2f} ms  ({len(values)} times)", flush=True)


if __name__ == "__main__":
    main()
