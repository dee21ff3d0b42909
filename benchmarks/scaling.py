"""Questions a second on one, two and four GPUs, and with several processes on each: one process, one engine.

    python benchmarks/scaling.py mix --gpus 1 2 --each 1 3
    python benchmarks/scaling.py query --gpus 1 2 4 --each 2
    python benchmarks/scaling.py mix --gpus 1 2 --each 3 --engine ray

Every GPU gets the same number of fresh pictures, shared out among its processes; all start at the same moment, when all
have loaded their models and warmed up. Efficiency is questions a second, over as many times those of one GPU with as
many processes. Work as in ``speed.py``: BLIP at a released size with random weights, language models replayed at no
cost.

Processes share nothing (``processes.py``). With ``--engine ray`` they are actors of ``codevqa eval --engine ray``, on a
Ray that sees only so many GPUs; one process deals out the examples and keeps the rows (``ray_share.py``).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import processes


def main() -> None:
    """Parses the arguments and prints a line for each number of GPUs and processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=processes.COMMANDS)
    parser.add_argument("--gpus", type=int, nargs="+", default=[1])
    parser.add_argument("--each", type=int, nargs="+", default=[1], help="processes on each GPU")
    parser.add_argument("--engine", choices=["processes", "ray"], default="processes")
    parser.add_argument("--json", type=Path, help="file to append the figures to, one JSON object a line")
    processes.arguments(parser, gpu=True)
    options = parser.parse_args()
    measured: Callable[[argparse.Namespace, int, int], processes.Found] = processes.measured
    if options.engine == "ray":
        import ray_share  # Ray is an optional extra

        measured = ray_share.measured
    single: dict[int, float] = {}
    for each in options.each:
        for gpus in options.gpus:
            found = {
                "benchmark": f"scaling, {options.command}",
                "engine": options.engine,
                "GPUs": gpus,
                "processes on each": each,
                **measured(options, each, gpus),
            }
            rate = found["items"] / found["seconds"]
            single.setdefault(each, rate / gpus)
            found |= {
                "questions a second": rate,
                "milliseconds": 1000 / rate,
                "efficiency": rate / gpus / single[each],
            }
            print(json.dumps(found), flush=True)
            if options.json:
                with options.json.open("a") as handle:
                    handle.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
