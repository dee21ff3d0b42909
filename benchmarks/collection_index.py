"""How fast a collection opens, is indexed and is compared with a text, and how much memory that takes.

    python benchmarks/collection_index.py [--pictures 1000] [--matcher FOLDER] [--side 480]

Pictures are drawn first, as JPEG files that all differ. Each step runs in a process of its own, over one index, so that
its peak memory is its own. ``index`` decodes the pictures and runs the vision tower over them; ``compare`` asks for the
contrastive scores of all, which reads embeddings; ``closely`` reads the features of all. Seconds are those of work:
loading the models is left out. The load is printed, because other work on the machine makes all of it slower.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from codevqa import CodeVQA
from codevqa.collections.collection import Collection
from codevqa.models.protocols import MatchRequest, SimilarityRequest

STEPS = ("open", "open again", "index", "compare", "compare again", "closely")


def draw_pictures(folder: Path, count: int, side: int) -> None:
    """Draws pictures whose files are about as large as photographs of that size."""
    folder.mkdir()
    numbers = np.random.default_rng(0)
    for number in range(count):
        coarse = numbers.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((side * 4 // 3, side), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg")


def step(name: str, folder: Path, matcher: str | None) -> float:
    """Does one step, and returns its seconds."""
    pictures = Collection(folder, index=folder.parent / "index")
    begun = time.perf_counter()
    pictures.open()
    if name.startswith("open"):
        return time.perf_counter() - begun
    with CodeVQA.from_preset(matcher=matcher) as vqa:
        model: Any = vqa.models.matcher
        begun = time.perf_counter()
        if name == "index":
            vqa.index(pictures)
            return time.perf_counter() - begun
        for start in range(0, len(pictures), model.batch):
            some = pictures.open()[start : start + model.batch]
            if name == "closely":
                model.match([MatchRequest(picture, "a red ball") for picture in some])
            else:
                model.similarity([SimilarityRequest(picture, "a red ball") for picture in some])
        model.keep_features()
        return time.perf_counter() - begun


def main() -> None:
    """Runs the steps and prints their figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("--pictures", 1000), ("--side", 480)):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--matcher")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(
            step(options.step, options.folder, options.matcher),
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        )
        return
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "pictures"
        draw_pictures(folder, options.pictures, options.side)
        print(f"{options.pictures:,} pictures, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(f"{'step':14} {'seconds':>8} {'pictures/s':>11} {'of opening':>11} {'peak MB':>8}")
        first = 0.0
        for name in STEPS:
            command = [sys.executable, __file__, *sys.argv[1:], "--step", name, "--folder", str(folder)]
            fields = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            seconds, first = float(fields[0]), first or float(fields[0])
            print(f"{name:14} {seconds:8.2f} {options.pictures / seconds:11.0f} {seconds / first:11.2f} {fields[1]:>8}")
        kept = sum(file.stat().st_size for file in (folder.parent / "index").rglob("*") if file.is_file())
        print(f"index: {kept / options.pictures / 1e3:.0f} kB a picture; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
