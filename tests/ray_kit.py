"""Engines for the actors of Ray that wait for each other or answer slowly, and which processes a program started."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eval_kit import fake_engine

from codevqa import CodeVQA
from codevqa.eval.ray import evaluate
from codevqa.models.base import GenerationRequest

ray_evaluate = functools.partial(evaluate, actors=2)


def make(factory: Callable[..., CodeVQA], **options: Any) -> Callable[[], CodeVQA]:
    return functools.partial(factory, **options)


def gathered(folder: Path, count: int, workers: int = 4) -> CodeVQA:
    """An engine that says where it is, and answers nothing before that many have been made."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()

    def place(request: GenerationRequest) -> str:
        until = time.monotonic() + 300
        while len(list(folder.iterdir())) < count and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.02)
        import ray

        return f"{ray.get_runtime_context().get_node_id()[:6]} {os.environ.get('CUDA_VISIBLE_DEVICES')} {os.getpid()}"

    return fake_engine(read=place, workers=workers)


def slowly(request: GenerationRequest) -> str:
    time.sleep(0.02)
    return "yes"


def listening() -> tuple[list[int], list[str]]:
    """Returns this process and those below it, and the addresses they listen on."""
    import psutil

    below = [psutil.Process(), *psutil.Process().children(recursive=True)]
    addresses = {one.laddr.ip for process in below for one in process.net_connections() if one.status == "LISTEN"}
    # Ray's own agents stay a while where everything is killed.
    return [process.pid for process in below if "Agent" not in "".join(process.cmdline())], sorted(addresses)
