"""Questions a second on one, two and four GPUs, and with several processes on each: one process, one engine.

    python benchmarks/scaling.py mix --gpus 1 2 --each 1 3
    python benchmarks/scaling.py query --gpus 1 2 4 --each 2

Every GPU gets the same number of fresh pictures, shared out among its processes; all start at the same moment, when all
have loaded their models, made their pictures and warmed up. A question costs Python a good part of what it costs the
GPU, so that one process does not keep a GPU busy with short questions. Efficiency is questions a second, over as many
times those of one GPU with as many processes. Work as in ``speed.py``: BLIP at a released size with random weights,
language models replayed at no cost.

Processes are started here and share nothing; ``codevqa eval --engine ray`` places engines in the same way.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any


def work(options: argparse.Namespace) -> None:
    """Answers one process's share, when told to on standard input; prints when it began and ended."""
    from random_blip import engine, fresh_pictures, networks, questions, served

    from codevqa import Question

    sys.setswitchinterval(0.0005)
    method: Any = "pnpvqa" if options.command == "query" else "codevqa"
    each = 1 if options.command == "query" else options.questions

    def asked(pictures: int, seed: int) -> list[Question]:
        texts = questions(seed)
        return [Question(one, next(texts)) for one in fresh_pictures(pictures, seed) for _ in range(each)]

    matching, captioning = networks(options.size, options.device)
    with engine(served(matching), served(captioning), at_once=options.at_once) as vqa:
        vqa.ask_many(asked(options.warm_up, 1000 + options.share), method=method)
        items = asked(options.pictures, 2000 + options.share)
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.time()
        answers = vqa.ask_many(items, method=method)
        failed = sum(answer.error is not None for answer in answers)
        print(json.dumps({"began": began, "ended": time.time(), "items": len(items), "failed": failed}), flush=True)


def measured(options: argparse.Namespace, gpus: int, each: int) -> dict[str, Any]:
    """Runs so many processes on each of so many GPUs; returns what they did together."""
    started = []
    for share in range(gpus * each):
        command = [sys.executable, __file__, options.command, "--share", str(share)]
        for name in ("size", "device", "questions"):
            command += [f"--{name}", str(getattr(options, name))]
        for name in ("pictures", "warm_up", "at_once"):
            command += [f"--{name.replace('_', '-')}", str(max(1, getattr(options, name) // each))]
        places = os.environ | {"CUDA_VISIBLE_DEVICES": str(share % gpus)}
        started.append(subprocess.Popen(command, env=places, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in started:
        if _line(process) != "ready":
            sys.exit("scaling: a process did not get ready; its messages are above.")
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    found = [json.loads(_line(process)) for process in started]
    for process in started:
        process.wait()
    seconds = max(one["ended"] for one in found) - min(one["began"] for one in found)
    items = sum(one["items"] for one in found)
    return {
        "benchmark": f"scaling, {options.command}",
        "GPUs": gpus,
        "processes on each": each,
        "questions": items,
        "failed": sum(one["failed"] for one in found),
        "questions a second": items / seconds,
        "milliseconds": 1000 * seconds / items,
    }


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def main() -> None:
    """Parses the arguments and prints a line for each number of GPUs and processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["query", "mix"])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1])
    parser.add_argument("--each", type=int, nargs="+", default=[1], help="processes on each GPU")
    parser.add_argument("--size", default="large", choices=["tiny", "base", "large"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pictures", type=int, default=0, help="on each GPU; 0 for 2048 (query) or 256 (mix)")
    parser.add_argument("--questions", type=int, default=8, help="questions a picture (mix)")
    parser.add_argument("--warm-up", type=int, default=384, help="pictures on each GPU before the measured ones")
    parser.add_argument("--at-once", type=int, default=768, help="questions under way at once on each GPU")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.pictures = options.pictures or (2048 if options.command == "query" else 256)
    if options.share is not None:
        work(options)
        return
    single: dict[int, float] = {}
    for each in options.each:
        for gpus in options.gpus:
            found = measured(options, gpus, each)
            rate = found["questions a second"]
            single.setdefault(each, rate / gpus)
            found["efficiency"] = rate / gpus / single[each]
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
