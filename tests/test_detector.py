"""Detectors and contrastive matchers give the numbers of their networks, whatever else is asked at the same time."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tiny import lose_a_weight, noise_picture, write_blip
from tiny_detector import write_clip, write_grounding_dino, write_owlv2, write_siglip

from codevqa import CodeVQA
from codevqa.core.errors import ModelNotFoundError, SetupError
from codevqa.models.contrastive import ContrastiveMatcher
from codevqa.models.detector import ZeroShotDetector
from codevqa.models.protocols import Box, DetectRequest, SimilarityRequest, grounds
from codevqa.presets.assembly import load

WRITERS = {"grounding-dino": write_grounding_dino, "owlv2": write_owlv2}
REQUESTS = [
    DetectRequest(noise_picture(0), "cat"),
    DetectRequest(noise_picture(1), "a red dog in the park"),
    DetectRequest(noise_picture(2, 60, 30), "Dog."),
    DetectRequest(noise_picture(1), "cat"),
    DetectRequest(noise_picture(2, 60, 30), "cat " * 100),
]


@pytest.fixture(scope="module", params=WRITERS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def detector(folder: str) -> ZeroShotDetector:
    return ZeroShotDetector.from_pretrained(folder, device="cpu", threshold=0.0, max_batch=4)


def rows(boxes: tuple[Box, ...]) -> npt.NDArray[np.float64]:
    return np.array([(box.left, box.top, box.right, box.bottom, box.score) for box in boxes]).reshape(-1, 5)


def test_boxes_are_what_the_network_says_of_the_picture_alone(detector: ZeroShotDetector) -> None:
    picture = noise_picture(0)  # 40 x 30
    grounding = detector._network.config.model_type == "grounding-dino"
    text = "cat." if grounding else "a photo of a cat"
    inputs = detector._processor(images=[picture.pixels], text=[text], return_tensors="pt")
    with torch.inference_mode():
        output = detector._network(**inputs)
    scores = output.logits.sigmoid().amax(-1)[0]
    x, y, width, height = output.pred_boxes[0].T
    # OWLv2 sees a square whose lower part is grey.
    across, down = 40, 30 if grounding else 40
    expected = torch.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], -1)
    expected = expected * torch.tensor([across, down, across, down])
    (boxes,) = detector.detect([DetectRequest(picture, " Cat ")])
    order = scores.argsort(descending=True, stable=True)
    assert len(boxes) == len(scores) > 10
    np.testing.assert_allclose(rows(boxes), torch.cat([expected, scores[:, None]], -1)[order].numpy(), atol=1e-3)


def test_a_box_does_not_depend_on_what_else_is_asked(detector: ZeroShotDetector) -> None:
    together = detector.detect(REQUESTS)
    for request, boxes in zip(REQUESTS, together, strict=True):
        (alone,) = detector.detect([request])
        np.testing.assert_allclose(rows(boxes), rows(alone), atol=1e-2)
    assert not np.allclose(rows(together[0]), rows(together[3]), atol=1)


def test_a_folder_as_on_the_hub_finds_the_same(folder: str, detector: ZeroShotDetector, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    settings = json.loads((tmp_path / "processor_config.json").read_text())
    (tmp_path / "processor_config.json").unlink()
    older = settings["image_processor"] | {"processor_class": settings["processor_class"]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(older))
    copied = ZeroShotDetector.from_pretrained(str(tmp_path), device="cpu", threshold=0.0, max_batch=4)
    assert copied.detect(REQUESTS[:2]) == detector.detect(REQUESTS[:2])
    assert type(copied._processor.image_processor).__name__.endswith("Pil")


def test_boxes_at_or_below_the_threshold_are_left_out(folder: str, detector: ZeroShotDetector) -> None:
    (every,) = detector.detect(REQUESTS[:1])
    bound = every[4].score
    (boxes,) = ZeroShotDetector.from_pretrained(folder, threshold=bound).detect(REQUESTS[:1])
    assert boxes == every[:4]
    assert load("detector", f"zero-shot:{folder}")._threshold == 0.3


def test_a_program_counts_with_it(folder: str, detector: ZeroShotDetector) -> None:
    picture = noise_picture(0)
    expected = sum(box.score > 0.3 for box in detector.detect([DetectRequest(picture, "cat")])[0])
    with CodeVQA.from_preset("mini", detector=f"zero-shot:{folder}") as vqa:
        assert "find_object(img: Image" in vqa.prompt("How many cats are there?")
        answer = vqa.run(picture, "answer = len(find_object(img, 'cat'))")
        assert answer.models["detector"] == Path(folder).name
    assert int(answer.text) == expected > 0
    assert answer.trace.calls[0].evidence[0].kind == "detection"


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda folder: (folder / "processor_config.json").unlink(), "Cannot load the"),
        (lose_a_weight, "is not complete: 1 weights are missing"),
    ],
)
@pytest.mark.parametrize(("write", "kind"), [(write_owlv2, ZeroShotDetector), (write_clip, ContrastiveMatcher)])
def test_a_damaged_folder_is_one_line(
    tmp_path: Path, write: Callable[[Path], str], kind: Any, spoil: Callable[[Path], object], says: str
) -> None:
    write(tmp_path)
    spoil(tmp_path)
    with pytest.raises(ModelNotFoundError, match=says):
        kind.from_pretrained(str(tmp_path))


def test_what_is_no_detector_is_named(tmp_path: Path, folder: str) -> None:
    with pytest.raises(ModelNotFoundError, match="Cannot load the detector"):
        ZeroShotDetector.from_pretrained(write_blip(tmp_path / "blip", "captioner"))
    with pytest.raises(SetupError, match=r"no threshold 1\.5"):
        ZeroShotDetector.from_pretrained(folder, threshold=1.5)
    other = ZeroShotDetector.from_pretrained(folder)
    other._network.config.model_type = "omdet-turbo"
    with pytest.raises(SetupError, match="'omdet-turbo' network"):
        ZeroShotDetector(other._network, other._processor, name="x")


CONTRASTIVE = {"clip": write_clip, "siglip": write_siglip}
PICTURES = [noise_picture(0), noise_picture(1), noise_picture(2, 60, 30)]
TEXTS = ["a picture of a cat", "A Dog", "cat " * 100, ""]
PAIRS = [SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS]


@pytest.fixture(scope="module", params=CONTRASTIVE)
def contrastive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return CONTRASTIVE[request.param](tmp_path_factory.mktemp(request.param))


def test_scores_are_the_network_s_own(contrastive: str) -> None:
    matcher = load("matcher", f"contrastive:{contrastive}", device="cpu")
    network, siglip = matcher._network, "siglip" in contrastive
    texts = [TEXTS[0], TEXTS[1].lower()]
    shape: Any = {"padding": "max_length", "max_length": 64} if siglip else {"padding": True, "max_length": 16}
    shape |= {"truncation": True, "padding_side": "right", "return_tensors": "pt"}
    inputs = matcher._processor(images=[picture.pixels for picture in PICTURES], text=texts, **shape)
    if siglip:
        # "a▁dog", its end, and padding up to the place that is read.
        assert inputs["input_ids"][1].tolist() == [5, 4, 8, 19, 11, 1] + [0] * 58
        del inputs["attention_mask"]
    with torch.inference_mode():
        logits = network(**inputs).logits_per_image
        bias = network.logit_bias if siglip else 0
        expected = (logits - bias) / network.logit_scale.exp()
    asked = [SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS[:2]]
    np.testing.assert_allclose(matcher.similarity(asked), expected.ravel().tolist(), atol=1e-5)
    assert expected.std() > 0.01 and not grounds(matcher) and matcher.name == Path(contrastive).name


def test_a_score_does_not_depend_on_what_else_is_asked_and_a_picture_is_embedded_once(contrastive: str) -> None:
    matcher = ContrastiveMatcher.from_pretrained(contrastive, device="cpu")
    matcher.batch = 2
    alone = [
        ContrastiveMatcher.from_pretrained(contrastive, device="cpu").similarity([request])[0] for request in PAIRS
    ]
    seen: list[int] = []
    embed = matcher._network.get_image_features

    def counting(pixel_values: torch.Tensor) -> object:
        seen.append(len(pixel_values))
        return embed(pixel_values=pixel_values)

    matcher._network.get_image_features = counting
    np.testing.assert_allclose(matcher.similarity(PAIRS), alone, atol=1e-5)
    np.testing.assert_allclose(matcher.similarity(PAIRS[::-1]), alone[::-1], atol=1e-5)
    assert seen == [2, 1] and len(set(np.round(alone, 4))) > 6


def test_what_does_not_compare_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="'blip' network"):
        ContrastiveMatcher.from_pretrained(write_blip(tmp_path, "captioner"))
