"""Several processes that answer questions at once, each with an engine of its own over its share of the pictures.

A question costs Python a good part of what it costs a GPU, so that one process does not keep a GPU busy. All start at
the same moment: when each has loaded its models, made its pictures and warmed up. This file is also what they run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from codevqa import CodeVQA

Found = dict[str, Any]
COMMANDS = ("query", "mix")


def arguments(parser: argparse.ArgumentParser, gpu: bool) -> None:
    """Adds what decides the work, on each GPU where there are several."""
    parser.add_argument("--size", default="large", choices=["tiny", "base", "large"])
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--pictures", type=int, default=0, help="0 for 2048 (query) or 256 (mix) on a GPU, 8 elsewhere")
    parser.add_argument("--questions", type=int, default=8, help="questions a picture (mix)")
    parser.add_argument("--warm-up", type=int, default=384 if gpu else 2, help="pictures before the measured ones")
    parser.add_argument("--at-once", type=int, default=768 if gpu else 16, help="questions under way at once")
    parser.add_argument("--batch", type=int, default=0, help="rows in one batch at most; 0 for each model's own choice")


def pictures(options: argparse.Namespace) -> int:
    """Returns how many pictures are asked about on a GPU, or on the CPU."""
    usual = (2048 if options.command == "query" else 256) if options.device.startswith("cuda") else 8
    return int(options.pictures or usual)


def per_picture(options: argparse.Namespace) -> int:
    """Returns how many questions are asked about a picture."""
    return 1 if options.command == "query" else int(options.questions)


def measured(options: argparse.Namespace, each: int, gpus: int = 1) -> Found:
    """Runs so many processes on each of so many GPUs; returns what they did together.

    Time counts from the moment they are told to start until the last has answered.
    """
    count = gpus * each
    whole = pictures(options) * gpus
    shares, places = [], []
    for number in range(count):
        share = [sys.executable, __file__, options.command, "--share", str(number)]
        for name in ("size", "device", "questions", "batch"):
            share += [f"--{name}", str(getattr(options, name))]
        share += ["--pictures", str(whole * (number + 1) // count - whole * number // count)]
        share += ["--warm-up", str(-(-options.warm_up // each)), "--at-once", str(-(-options.at_once // each))]
        shares.append(share)
        places.append(_place(number % gpus) if gpus > 1 else {})
    seconds, found = together(shares, places)
    items = sum(one["items"] for one in found)
    done = {key: sum(one["done"][key] for one in found) for key in found[0]["done"]}
    return {
        "seconds": seconds,
        "items": items,
        "failed": sum(one["failed"] for one in found),
        "first failure": next((one["first failure"] for one in found if one["failed"]), ""),
        "done for each": {key: round(value / items, 3) for key, value in done.items()},
        "device": found[0]["device"],
    }


def _place(gpu: int) -> dict[str, str]:
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return {"CUDA_VISIBLE_DEVICES": seen.split(",")[gpu] if seen else str(gpu)}


def together(
    commands: Sequence[Sequence[str]], places: Sequence[Mapping[str, str]] | None = None
) -> tuple[float, list[Found]]:
    """Starts commands at the same moment; returns the seconds until the last ended its work, and what each found.

    Each prints ``ready``, waits for a line, works, and prints a JSON object with ``ended``, the time of day. One that
    ends without ends all the others and this program.
    """
    started: list[subprocess.Popen[str]] = []
    try:
        for command, place in zip(commands, places or [{}] * len(commands), strict=True):
            pipe = subprocess.PIPE
            started.append(subprocess.Popen(command, env={**os.environ, **place}, stdin=pipe, stdout=pipe, text=True))
        for number in range(len(started)):
            if _said(started, number, "get ready") != "ready":
                sys.exit(f"processes: process {number} said something else than that it is ready.")
        began = time.time()
        for process in started:
            assert process.stdin is not None
            with suppress(BrokenPipeError):  # what it says next tells that it is gone
                process.stdin.write("go\n")
                process.stdin.flush()
        found = [json.loads(_said(started, number, "finish its work")) for number in range(len(started))]
        for process in started:
            process.wait()
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return max(one["ended"] for one in found) - began, found


def _said(started: Sequence[subprocess.Popen[str]], number: int, what: str) -> str:
    process = started[number]
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        code = process.wait()
        why = signal.Signals(-code).name if code < 0 else f"status {code}"
        sys.exit(f"processes: process {number} of {len(started)} did not {what} ({why}); its messages are above.")
    return line


def counts(vqa: CodeVQA) -> dict[str, int]:
    """Returns what the models have done so far."""
    matcher, captioner = vqa.models.matcher.stats, vqa.models.captioner.stats  # type: ignore[attr-defined]
    return {
        "matcher's vision forwards": matcher.vision_forwards,
        "captioner's vision forwards": captioner.vision_forwards,
        "texts matched": matcher.text_rows,
        "captions": captioner.text_rows,
    }


def work(options: argparse.Namespace) -> None:
    """Answers one process's share when told to on standard input."""
    # What a library may print goes with the messages.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch
    from random_blip import engine, fresh_pictures, networks, questions, served

    from codevqa import Question

    # At Python's five milliseconds, a thread that launches GPU work waits for one that computes.
    sys.setswitchinterval(0.0005)
    method: Any = "pnpvqa" if options.command == "query" else "codevqa"

    def asked(count: int, seed: int) -> list[Question]:
        texts = questions(seed)
        return [Question(one, next(texts)) for one in fresh_pictures(count, seed) for _ in range(per_picture(options))]

    networks_served = map(served, networks(options.size, options.device))
    with engine(*networks_served, at_once=options.at_once, batch=options.batch or None) as vqa:
        vqa.ask_many(asked(options.warm_up, 1000 + options.share), method=method)
        items, before = asked(options.pictures, 2000 + options.share), counts(vqa)
        print("ready", file=channel, flush=True)
        sys.stdin.readline()
        answers = vqa.ask_many(items, method=method)
        ended = time.time()
        failed = [answer for answer in answers if answer.error is not None]
        found = {
            "ended": ended,
            "items": len(items),
            "failed": len(failed),
            "first failure": f"{failed[0].question}: {failed[0].error}" if failed else "",
            "done": {key: value - before[key] for key, value in counts(vqa).items()},
            "device": torch.cuda.get_device_name()
            if options.device.startswith("cuda")
            else f"cpu, {torch.get_num_threads()} threads",
        }
        print(json.dumps(found), file=channel, flush=True)


def main() -> None:
    """Runs one process's share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--share", type=int, required=True, help="which it is")
    arguments(parser, gpu=False)
    work(parser.parse_args())


if __name__ == "__main__":
    main()
