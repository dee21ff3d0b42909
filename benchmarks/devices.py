"""Compares the models of a preset on the GPU with the same on the CPU: ``python benchmarks/devices.py [PRESET]``.

Prints the largest differences in float32 and in bfloat16, the GPU's default, and the greedy texts that differ.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest, GenerationRequest, MatchRequest, SimilarityRequest
from codevqa.presets.assembly import load, prompt_sets, quiet_libraries
from codevqa.presets.presets import preset
from codevqa.writing.writer import Writer

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def answers(name: str, device: str, dtype: str) -> dict[str, Any]:
    """Returns what each model says of the shipped pictures and questions."""
    chosen = preset(name)
    pictures = [load_picture(path) for path in sorted((EXAMPLES / "pictures").glob("*.png"))]
    asked = [json.loads(line) for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    where = {"device": device, "dtype": dtype}
    matcher = load("matcher", chosen.matcher, **where, **chosen.options.get("matcher", {}))
    captioner = load("captioner", chosen.captioner, **where, **chosen.options.get("captioner", {}))
    writer = load("language_model", chosen.parts["language_model"], **where)
    prompts = Writer(writer, prompt_sets(chosen, None))
    requests: list[GenerationRequest] = []
    for one in asked:
        requests.append(prompts.request(one["question"], "image" if len(one["images"]) == 1 else "set")[0])
    matches = matcher.match([MatchRequest(picture, one["question"]) for picture in pictures for one in asked])
    patches = tuple(range(0, captioner.grid**2, captioner.grid))
    return {
        "relevance": np.stack([match.relevance for match in matches]),
        "logits": np.array([match.logit for match in matches]),
        "scores": np.array(matcher.similarity([SimilarityRequest(picture, "a red star") for picture in pictures])),
        "captions": captioner.caption([CaptionRequest(picture) for picture in pictures])
        + captioner.caption([CaptionRequest(picture, patches, seed) for picture in pictures for seed in range(8)]),
        "programs": [completion.text for completion in writer.generate(requests)],
    }


def main() -> None:
    """Prints the comparison."""
    name = sys.argv[1] if len(sys.argv) > 1 else "mini"
    if not torch.cuda.is_available():
        sys.exit("devices: this machine has no CUDA device to compare with.")
    quiet_libraries()
    expected = answers(name, "cpu", "float32")
    for dtype in ("float32", "bfloat16"):
        found = answers(name, "cuda", dtype)
        print(f"{name}, {torch.cuda.get_device_name()}, {dtype}")
        scale = np.linalg.norm(expected["relevance"])
        print(f"  GradCAM, relative norm   {np.linalg.norm(found['relevance'] - expected['relevance']) / scale:.2e}")
        for key in ("logits", "scores"):
            print(f"  {key}, largest difference {np.abs(found[key] - expected[key]).max():.2e}")
        for key in ("captions", "programs"):
            same = sum(one == other for one, other in zip(found[key], expected[key], strict=True))
            print(f"  {key} equal {same} of {len(expected[key])}")


if __name__ == "__main__":
    main()
