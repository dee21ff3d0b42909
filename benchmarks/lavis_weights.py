"""Writes a BLIP checkpoint of random weights, as LAVIS saves one; run by the Python of LAVIS's environment.

Usage: ``python benchmarks/lavis_weights.py matcher|captioner base|large SEED VOCABULARY FILE.pth``. Weights are drawn
wide, so that attention is not flat; positions wider, so that a caption does not say one word again and again.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch

WORKER = Path(__file__).resolve().parents[1] / "codevqa" / "models" / "lavis" / "worker.py"


def main(part: str, size: str, seed: str, vocabulary: str, file: str) -> None:
    """Draws and writes."""
    model, _ = runpy.run_path(str(WORKER))["build"](part, size, vocabulary)
    drawn = torch.Generator().manual_seed(int(seed))
    for name, weight in model.named_parameters():
        spread = 0.2 if "position_embeddings" in name else 0.04 if weight.dim() > 1 else 0.1
        centre = 1.0 if weight.dim() == 1 and name.endswith("weight") else 0.0  # of normalisations
        weight.data.normal_(centre, spread, generator=drawn)
    torch.save({"model": model.state_dict()}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
