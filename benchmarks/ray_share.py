"""The work of ``processes.py`` as an evaluation on Ray: ``scaling.py --engine ray`` runs it.

Examples go through :class:`codevqa.eval.ray.actor_pool.ActorPool` and rows into a store, as with
``codevqa eval --engine ray``.
Pictures lie as JPEG files of the size of most of GQA's, which actors read and decode.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image
from processes import Found, per_picture, pictures
from random_blip import engine, networks, questions, served

from codevqa import CodeVQA
from codevqa.eval.ray.actor_pool import ActorPool
from codevqa.eval.run.provenance import run_info
from codevqa.eval.run.request import EvalRequest
from codevqa.eval.run.runner import stream
from codevqa.eval.task import Example, Method, PictureFile


@dataclass
class Drawn:
    """Questions about pictures of noise, several about each."""

    folder: Path
    count: int
    each: int
    seed: int
    name: str = "gqa"
    split: str = "random"
    prompts: str = "gqa"

    def __len__(self) -> int:
        return self.count * self.each

    def __iter__(self) -> Iterator[Example]:
        texts = questions(self.seed)
        for number in range(len(self)):
            place = number // self.each
            picture = PictureFile(self.folder / f"{self.seed}-{place}.jpg")
            yield Example(f"{number:06}", next(texts), (picture,), "image", cluster=f"{self.seed} {place}")

    def write(self) -> Drawn:
        """Writes the pictures, and returns itself."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(self._write, range(self.count)))
        return self

    def _write(self, place: int) -> None:
        # Coarse noise: fine noise makes files ten times as long as photographs are.
        noise = np.random.default_rng((self.seed, place)).integers(0, 256, (47, 63, 3), dtype=np.uint8)
        Image.fromarray(noise).resize((500, 375)).save(self.folder / f"{self.seed}-{place}.jpg", quality=90)


def make(size: str, device: str, at_once: int, batch: int) -> CodeVQA:
    """Returns an actor's engine."""
    return engine(*map(served, networks(size, device)), at_once=at_once, batch=batch or None)


def measured(options: argparse.Namespace, each: int, gpus: int = 1) -> Found:
    """Runs so many actors on each of so many GPUs; returns what they did together, warm, with rows in the store."""
    if options.device.startswith("cuda"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(gpus)))
    method: Method = "pnpvqa" if options.command == "query" else "codevqa"
    workers = -(-options.at_once // each)
    factory = partial(make, options.size, options.device, workers, options.batch)
    with tempfile.TemporaryDirectory() as scratch:
        folder, per = Path(scratch), per_picture(options)
        warm = Drawn(folder, options.warm_up * gpus, per, 1).write()
        data = Drawn(folder, pictures(options) * gpus, per, 2).write()
        with ActorPool(factory, actors=gpus * each) as pool:
            pool.seeds = (0,)
            pool.fill()
            info = run_info(pool.info, data, EvalRequest(methods=(method,), seeds=(0,)))
            together = len(pool) * workers
            stream(folder / "warm", warm, pool, info, workers=together).close()
            began, busy = time.perf_counter(), time.process_time()
            with stream(folder / "run", data, pool, info, workers=together) as store:
                seconds, busy = time.perf_counter() - began, time.process_time() - busy
                failed = [row for row in store.rows(method) if row.error]
                items = len(store)
    first = f"{failed[0].id}: {failed[0].error} {failed[0].message}" if failed else ""
    return {
        "seconds": seconds,
        "items": items,
        "failed": len(failed),
        "first failure": first,
        "cores the dealing process was busy on": round(busy / seconds, 2),
    }
