"""Compares the BLIP back end with LAVIS or with transformers on the same weights, and prints a table.

    python benchmarks/parity.py GOLDEN_DIR [--live base|large]          LAVIS
    python benchmarks/parity.py --transformers mini|base|MATCHER,CAPTIONER

GOLDEN_DIR holds LAVIS's weights, pictures and results: ``lavis.safetensors``, ``lavis_caption.safetensors``,
``vocab.txt``, ``meta.json``, ``image*.png`` and the two ``golden*.safetensors``. With ``--live`` LAVIS itself computes
beside us (docs/reports/lavis.md says how to install it), on random weights of full size and the same pictures. Their
checkpoints take up to 8 GB in the folder for temporary files. Transformers computes the embedded models, random weights
of the base size, or two folders, by the reference of our tests.

A difference is the norm of what differs over the norm of what LAVIS computed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

import codevqa
from codevqa.core.images import Picture, load_picture
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.lavis_names import convert_lavis
from codevqa.models.lavis.parts import LavisCaptioner, LavisMatcher
from codevqa.models.lavis.process import python_of
from codevqa.models.protocols import CaptionRequest, MatchRequest, SimilarityRequest

PIECES = 30_522
"""BERT's vocabulary."""

Numbers: TypeAlias = npt.NDArray[Any]
Numeric = TypeVar("Numeric")
Caption = TypeVar("Caption")


@dataclass(frozen=True)
class NetworkOutputs(Generic[Numeric, Caption]):
    """What one side computed, or how far it is from the other; each list has one entry a picture."""

    itm: list[Numeric]
    """The two ITM logits."""
    itc: list[Numeric]
    """The ITC scores with each text."""
    gradcam: list[Numeric]
    """The GradCAM maps of all tokens."""
    relevance: list[Numeric]
    """The map averaged over the words, as ``match`` returns it."""
    logits: list[Numeric]
    """The captioner's logits over the prompt."""
    captions: list[Caption]
    """The greedy captions, or whether they are the same tokens."""


SideOutputs: TypeAlias = NetworkOutputs[Numbers, list[int]]
Parity: TypeAlias = NetworkOutputs[float, bool]


@dataclass(frozen=True)
class ParityRequests:
    """What both sides are asked."""

    pairs: list[MatchRequest]
    captions: list[CaptionRequest]


def compute_outputs(
    asked: ParityRequests, matcher: BlipMatcher | LavisMatcher, captioner: BlipCaptioner | LavisCaptioner
) -> SideOutputs:
    """Has one side compute everything."""
    maps, itm = zip(*matcher.token_maps(asked.pairs), strict=True)
    every = [SimilarityRequest(pair.picture, other.text) for pair in asked.pairs for other in asked.pairs]
    return NetworkOutputs(
        list(itm),
        list(np.array(matcher.similarity(every)).reshape(len(asked.pairs), -1)),
        list(maps),
        [match.relevance for match in matcher.match(asked.pairs)],
        [np.asarray(captioner.prompt_logits(request)) for request in asked.captions],
        captioner.token_ids(asked.captions),
    )


def compare_sides(ours: SideOutputs, theirs: SideOutputs) -> Parity:
    """Measures how far the one side is from the other."""

    def apart(name: str) -> list[float]:
        pairs = zip(getattr(ours, name), getattr(theirs, name), strict=True)
        return [float(np.linalg.norm(our - their) / np.linalg.norm(their)) for our, their in pairs]

    same = [our == their for our, their in zip(ours.captions, theirs.captions, strict=True)]
    return Parity(apart("itm"), apart("itc"), apart("gradcam"), apart("relevance"), apart("logits"), same)


def measure_parity(golden: Path, work: Path) -> Parity:
    """Runs both networks on the golden inputs; converted checkpoints are written to ``work``."""
    convert_lavis(golden / "lavis.safetensors", golden / "vocab.txt", work / "matcher")
    convert_lavis(golden / "lavis_caption.safetensors", golden / "vocab.txt", work / "captioner")
    wanted, captions = load_file(golden / "golden.safetensors"), load_file(golden / "golden_caption.safetensors")
    texts, pictures, block = inputs(golden)
    # LAVIS's rows: the first token, the mean over the words, then each token from the second on, and padding.
    rows = [maps[: 1 + mask.sum()] for maps, mask in zip(wanted["gradcam"], wanted["attention_mask"], strict=True)]
    prompt = captions["prompt_ids"].shape[1]
    theirs = NetworkOutputs(
        list(wanted["itm"]),
        list(wanted["itc"]),
        [np.concatenate([maps[:1], maps[2:]]) for maps in rows],
        [maps[1] for maps in rows],
        list(captions["logits"]),
        [ids[prompt:].tolist() for ids in captions["greedy"]],
    )
    matcher = BlipMatcher.from_pretrained(str(work / "matcher"), device="cpu", block=block)
    longest = captions["greedy"].shape[1]
    captioner = BlipCaptioner.from_pretrained(str(work / "captioner"), device="cpu", max_length=longest)
    asked = ParityRequests(
        [MatchRequest(picture, text) for picture, text in zip(pictures, texts, strict=True)],
        [CaptionRequest(*pair) for pair in zip(pictures, map(tuple, captions["patches"].tolist()), strict=True)],
    )
    return compare_sides(compute_outputs(asked, matcher, captioner), theirs)


def inputs(golden: Path) -> tuple[list[str], list[Picture], int]:
    """Returns the texts, the pictures and the block of GradCAM."""
    meta = json.loads((golden / "meta.json").read_text())
    texts = [text.removesuffix("?") for text in meta["texts"]]
    return texts, [load_picture(golden / f"image{index}.png") for index in range(len(texts))], meta["block"]


def live(golden: Path, work: Path, size: str) -> Parity:
    """Runs LAVIS and the BLIP back end on random weights.

    Args:
        golden: has the pictures, texts and vocabulary.
        work: receives checkpoints.
        size: "base" or "large".
    """
    words = (golden / "vocab.txt").read_text(encoding="utf-8").split()
    vocabulary = work / "vocab.txt"  # of the size that the networks have
    filled = [*words, *(f"[unused{number}]" for number in range(PIECES - len(words)))]
    vocabulary.write_text("\n".join(filled) + "\n", encoding="utf-8")
    python, script = python_of(), Path(__file__).with_name("lavis_weights.py")
    for part in ("matcher", "captioner"):
        weights = work / f"{part}.pth"
        subprocess.run([python, script, part, size, "0", vocabulary, weights], check=True)
        convert_lavis(weights, vocabulary, work / part)
    texts, pictures, _ = inputs(golden)
    drawn = np.random.default_rng(0)
    patches = [tuple(sorted(drawn.choice(576, 20, replace=False).tolist())) for _ in texts]
    asked = ParityRequests(
        [MatchRequest(picture, text) for picture, text in zip(pictures, texts, strict=True)],
        [CaptionRequest(picture, some) for picture, some in zip(pictures, patches, strict=True)],
    )
    theirs = compute_outputs(
        asked,
        LavisMatcher.from_pretrained(str(work / "matcher.pth"), vocabulary=str(vocabulary), device="cpu"),
        LavisCaptioner.from_pretrained(str(work / "captioner.pth"), vocabulary=str(vocabulary), device="cpu"),
    )
    ours = compute_outputs(
        asked,
        BlipMatcher.from_pretrained(str(work / "matcher"), device="cpu"),
        BlipCaptioner.from_pretrained(str(work / "captioner"), device="cpu"),
    )
    return compare_sides(ours, theirs)


def beside_transformers(matcher: str, captioner: str, block: int) -> Parity:
    """Has transformers' own classes and the BLIP back end compute two folders."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    from blip_kit import PICTURES, TEXTS, Reference

    asked = ParityRequests(
        [MatchRequest(picture, text) for picture, text in zip(PICTURES, TEXTS, strict=True)],
        [CaptionRequest(picture) for picture in PICTURES],
    )
    match_model, caption_model = Reference(matcher), Reference(captioner)
    maps, itm = zip(*(match_model.gradcam(pair.picture, pair.text, block) for pair in asked.pairs), strict=True)
    itc = [[match_model.similarity(pair.picture, text) for text in TEXTS] for pair in asked.pairs]
    theirs = NetworkOutputs(
        list(itm),
        list(np.array(itc)),
        list(maps),
        [each.mean(0) for each in maps],
        [caption_model.prompt_logits(request).numpy() for request in asked.captions],
        [caption_model.caption(request) for request in asked.captions],
    )
    ours = compute_outputs(
        asked,
        BlipMatcher.from_pretrained(matcher, device="cpu", block=block, average="all"),
        BlipCaptioner.from_pretrained(captioner, device="cpu"),
    )
    return compare_sides(ours, theirs)


def print_parity(title: str, parity: Parity) -> None:
    """Prints one table."""
    print(f"{title:34}" + "".join(f"{f'image {index}':>11}" for index in range(len(parity.itm))))
    for name, figures in (
        ("ITM logits", parity.itm),
        ("ITC scores", parity.itc),
        ("GradCAM of every token", parity.gradcam),
        ("GradCAM of words", parity.relevance),
        ("caption logits", parity.logits),
    ):
        print(f"{name:34}" + "".join(f"{figure:11.1e}" for figure in figures))
    print(f"{'greedy caption':34}" + "".join(f"{'same' if same else 'DIFFERS':>11}" for same in parity.captions))


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golden", type=Path, nargs="?")
    parser.add_argument("--live", choices=("base", "large"))
    parser.add_argument("--transformers", metavar="mini|base|MATCHER,CAPTIONER")
    parser.add_argument("--block", type=int, help="the block of GradCAM; mini has 2, BLIP 7")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        if options.transformers:
            from random_blip import save_random_blip

            weights = f"{Path(codevqa.__file__).parent}/mini/weights"
            named = {"mini": f"{weights}/matcher,{weights}/captioner"}.get(options.transformers, options.transformers)
            matcher, captioner = save_random_blip("base", Path(work)) if named == "base" else named.split(",")
            block = options.block or (2 if options.transformers == "mini" else 7)
            print_parity(
                f"against transformers, {options.transformers}", beside_transformers(matcher, captioner, block)
            )
        elif options.golden is None:
            parser.error("name LAVIS's folder, or --transformers")
        else:
            parity = (
                live(options.golden, Path(work), options.live)
                if options.live
                else measure_parity(options.golden, Path(work))
            )
            print_parity(f"against LAVIS, {options.live or 'golden results'}", parity)


if __name__ == "__main__":
    main()
