"""Compares the BLIP back end with what LAVIS computed, and prints a table.

Usage: ``python benchmarks/parity.py GOLDEN_DIR``, where GOLDEN_DIR holds LAVIS's weights, pictures and results:
``lavis.safetensors``, ``lavis_caption.safetensors``, ``vocab.txt``, ``meta.json``, ``image*.png`` and the two
``golden*.safetensors``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from codevqa.core.images import load_picture
from codevqa.models.base import CaptionRequest, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.lavis_names import convert_lavis


@dataclass(frozen=True)
class Parity:
    """How far the back end is from LAVIS; each list has one figure a picture."""

    itm: list[float]
    """Largest absolute difference of the two ITM logits."""
    itc: list[float]
    """Largest absolute difference of the ITC scores with each text."""
    gradcam: list[float]
    """Norm of the difference of all GradCAM maps over the norm of LAVIS's."""
    relevance: list[float]
    """The same for the map averaged over the words, as ``match`` returns it."""
    logits: list[float]
    """Largest absolute difference of the captioner's logits over the prompt."""
    captions: list[bool]
    """Whether the greedy captions are the same tokens."""


def measure(golden: Path, work: Path) -> Parity:
    """Runs both networks on the golden inputs; converted checkpoints are written to ``work``."""
    convert_lavis(golden / "lavis.safetensors", golden / "vocab.txt", work / "matcher", heads=12)
    convert_lavis(golden / "lavis_caption.safetensors", golden / "vocab.txt", work / "captioner", heads=12)
    meta = json.loads((golden / "meta.json").read_text())
    texts: list[str] = [text.removesuffix("?") for text in meta["texts"]]
    pictures = [load_picture(golden / f"image{index}.png") for index in range(len(texts))]
    wanted, wanted_captions = load_file(golden / "golden.safetensors"), load_file(golden / "golden_caption.safetensors")

    matcher = BlipMatcher.from_pretrained(str(work / "matcher"), device="cpu", block=meta["block"])
    pairs = [MatchRequest(picture, text) for picture, text in zip(pictures, texts, strict=True)]
    itm, gradcam, relevance = [], [], []
    for index, (maps, logits) in enumerate(matcher.token_maps(pairs)):
        # LAVIS's rows: the first token, the mean over the words, then each token from 1 on.
        rows = np.stack([maps[0], maps[1:-1].mean(0), *maps[1:]])
        expected = wanted["gradcam"][index][: len(rows)]
        itm.append(float(np.abs(logits - wanted["itm"][index]).max()))
        gradcam.append(float(np.linalg.norm(rows - expected) / np.linalg.norm(expected)))
    for index, match in enumerate(matcher.match(pairs)):
        expected = wanted["gradcam"][index][1]
        relevance.append(float(np.linalg.norm(match.relevance - expected) / np.linalg.norm(expected)))
    scores = np.array(matcher.similarity([SimilarityRequest(p, t) for p in pictures for t in texts]))
    itc = np.abs(scores.reshape(len(pictures), len(texts)) - wanted["itc"]).max(1).tolist()

    captioner = BlipCaptioner.from_pretrained(
        str(work / "captioner"), device="cpu", max_length=wanted_captions["greedy"].shape[1]
    )
    shown = [
        CaptionRequest(picture, tuple(int(patch) for patch in patches))
        for picture, patches in zip(pictures, wanted_captions["patches"], strict=True)
    ]
    logits_apart = [
        float(np.abs(captioner.prompt_logits(request).numpy() - expected).max())
        for request, expected in zip(shown, wanted_captions["logits"], strict=True)
    ]
    prompt = wanted_captions["prompt_ids"].shape[1]
    same = [
        ids == expected[prompt:].tolist()
        for ids, expected in zip(captioner.token_ids(shown), wanted_captions["greedy"], strict=True)
    ]
    return Parity(itm, itc, gradcam, relevance, logits_apart, same)


def main(arguments: list[str]) -> int:
    """Prints the table."""
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as work:
        found = measure(Path(arguments[0]), Path(work))
    print(f"{'against LAVIS':34}" + "".join(f"{f'image {index}':>11}" for index in range(len(found.itm))))
    for name, figures in (
        ("ITM logits, largest difference", found.itm),
        ("ITC scores, largest difference", found.itc),
        ("GradCAM per token, relative norm", found.gradcam),
        ("GradCAM of words, relative norm", found.relevance),
        ("caption logits, largest difference", found.logits),
    ):
        print(f"{name:34}" + "".join(f"{figure:11.1e}" for figure in figures))
    print(f"{'greedy caption':34}" + "".join(f"{'same' if same else 'DIFFERS':>11}" for same in found.captions))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
