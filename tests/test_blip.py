"""BLIP gives what transformers' own classes give on the same folder, whatever else is in a batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import BLOCK, MATCHES, PICTURES, TEXTS, Reference, captioner, load
from PIL import Image as PILImage
from tiny import GRID, WORDS, noise_picture, write_blip

import codevqa
from codevqa.core.errors import ModelError, SetupError
from codevqa.core.images import Picture, load_picture
from codevqa.models.blip import BlipMatcher
from codevqa.models.blip.picture_input import PictureReader, PictureSettings, run_in_batches
from codevqa.models.blip.tokens import WordPieces, draw, numbers_of
from codevqa.models.options import CaptionerOptions
from codevqa.models.protocols import CaptionRequest, MatchRequest, SimilarityRequest

MINI = Path(codevqa.__file__).parent / "mini" / "weights"
SEP = WORDS.index("[SEP]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "captioner", "captioner", seed=1, ends=3)


def photo(seed: int, width: int = 200, height: int = 150) -> Picture:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return load_picture(PILImage.fromarray(noise))


def same_maps(folder: str, requests: Sequence[MatchRequest], block: int = BLOCK) -> None:
    """Checks GradCAM of every token, and the logits."""
    reference = Reference(folder)
    for request, (maps, logits) in zip(requests, load(folder, block=block).token_maps(requests), strict=True):
        expected, expected_logits = reference.gradcam(request.picture, request.text, block)
        np.testing.assert_allclose(maps, expected, rtol=0, atol=2e-5 * expected.max())
        np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=3e-5)


@pytest.mark.parametrize("block", [0, 2])
def test_gradcam_is_that_of_transformers(folder: str, block: int) -> None:
    same_maps(folder, MATCHES, block)


def test_similarity_is_that_of_transformers(folder: str) -> None:
    pairs = [SimilarityRequest(picture, text) for picture in PICTURES[:3] for text in TEXTS]
    reference = Reference(folder)
    expected = [reference.similarity(pair.picture, pair.text) for pair in pairs]
    assert load(folder).similarity(pairs) == pytest.approx(expected, abs=1e-5)
    assert len({round(score, 4) for score in expected}) == len(pairs)


def test_a_match_does_not_depend_on_its_batch(folder: str) -> None:
    requests = MATCHES
    alone = [load(folder).match([request])[0] for request in requests]
    for matcher in (load(folder), load(folder, max_batch=2)):
        for match, other in zip(matcher.match(requests), alone, strict=True):
            np.testing.assert_allclose(match.relevance, other.relevance, rtol=1e-4, atol=1e-7)
            assert match.logit == pytest.approx(other.logit, abs=3e-5)
    assert load(folder).match([]) == [] and load(folder).similarity([]) == []


def test_what_is_averaged(folder: str) -> None:
    text = "two cats in the park"  # [ENC] two cat ##s in the park [SEP]
    ((maps, _),) = load(folder).token_maps([MatchRequest(PICTURES[0], text)])
    assert len(maps) == 8

    def relevance(focus: str | None, **options: object) -> np.ndarray:
        return load(folder, **options).match([MatchRequest(PICTURES[0], text, focus)])[0].relevance

    words = maps[1:-1].mean(0)
    for actual, expected in (
        (relevance(None), words),
        (relevance(None, average="all"), maps.mean(0)),
        (relevance("cats"), maps[2:4].mean(0)),
        (relevance("The park", average="all"), maps[5:7].mean(0)),
        (relevance("park cats"), maps[[2, 3, 6]].mean(0)),  # which do not follow one another
        (relevance(" "), words),
        (relevance("dog", average="all"), words),
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-8)


def test_texts_without_words_too_long_or_that_spell_special_tokens(folder: str) -> None:
    matcher = load(folder, max_length=9)
    empty, long = matcher.match([MatchRequest(PICTURES[0], ""), MatchRequest(PICTURES[0], "dog " * 100, "dog")])
    assert empty.relevance.max() > 0 and long.relevance.max() > 0
    ((maps, _),) = matcher.token_maps([MatchRequest(PICTURES[0], "a [SEP] dog")])
    assert len(maps) == 7  # [ENC] a [ SEP ] dog [SEP]


def test_a_block_or_an_average_that_there_is_not(folder: str) -> None:
    with pytest.raises(SetupError, match="blocks 0 to 2, not 7"):
        BlipMatcher.from_pretrained(folder, device="cpu")
    with pytest.raises(SetupError, match="average"):
        load(folder, average="median")


def wanted(count: int, seed: int) -> list[CaptionRequest]:
    rng = np.random.default_rng(seed)
    requests = []
    for _ in range(count):
        patches = None if rng.random() < 0.2 else tuple(rng.permutation(GRID**2)[: rng.integers(1, 17)].tolist())
        number = None if rng.random() < 0.2 else int(rng.integers(2**63))
        requests.append(CaptionRequest(PICTURES[rng.integers(4)], patches, number))
    return requests


OPTIONS: list[CaptionerOptions] = [
    {},
    {"min_length": 0, "temperature": 0.5},
    {"min_length": 15, "max_length": 19, "top_k": 3},
    {"min_length": 0, "max_length": 5, "top_k": 1},
    {"top_k": 500, "temperature": 3.0, "prompt": ""},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_captions_are_those_of_transformers_whatever_is_in_their_batch(captions: str, options: Any) -> None:
    requests, reference = wanted(24, seed=len(str(options))), Reference(captions)
    expected = [reference.caption(request, **options) for request in requests]
    assert captioner(captions, **options).token_ids(requests) == expected
    assert captioner(captions, **options, max_batch=5).token_ids(requests[::-1]) == expected[::-1]


def test_the_mini_captioner_writes_what_transformers_writes() -> None:
    name = str(MINI / "captioner")
    rng, ours, reference = np.random.default_rng(3), captioner(name), Reference(name)
    patches = [tuple(rng.permutation(ours.grid**2)[:20].tolist()) for _ in range(12)]
    requests = [CaptionRequest(PICTURES[place % 4], some, place) for place, some in enumerate(patches)]
    expected = [reference.caption(request) for request in requests]
    assert ours.token_ids(requests) == expected
    captions = [reference.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in expected]
    assert ours.caption(requests) == captions and len(set(captions)) > 6


def test_a_caption_is_as_long_as_its_request_says(captions: str) -> None:
    writer = captioner(captions)  # 10 to 20 tokens
    lengths = (None, (20, 30), (10, 20), (0, 6))
    own, long, same, short = writer.token_ids([CaptionRequest(PICTURES[0], (1, 7), 3, tokens) for tokens in lengths])
    assert own == same != long
    assert 20 - 4 <= len(long) <= 30 - 4 and len(short) <= 6 - 4  # the prompt has 4 tokens
    for tokens in ((30, 20), (0, 4), (10, 99)):
        with pytest.raises(SetupError, match="tokens"):
            writer.caption([CaptionRequest(PICTURES[0], (1, 7), 3, tokens)])
    for options in ({"max_length": 4}, {"top_k": 0}, {"temperature": 0.0}):
        with pytest.raises(SetupError, match="tokens"):
            captioner(captions, **options)


@pytest.mark.parametrize("patches", [(), (0, GRID**2), (-1, 2)])
def test_patches_that_are_not_there(captions: str, patches: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="Patches"):
        captioner(captions).caption([CaptionRequest(PICTURES[0], patches)])


def whole(logits: torch.Tensor, numbers: torch.Tensor, top_k: int, temperature: float) -> list[int]:
    """Sampling by the definition, over the whole vocabulary in NumPy."""
    tokens = []
    for row, number in zip(logits.double().numpy(), numbers[:, 0].tolist(), strict=True):
        if number < 0:
            tokens.append(int(row.argmax()))
            continue
        least = np.sort(row)[-top_k]
        below = np.where(row >= least, np.exp((row - row.max()) / temperature), 0).cumsum()
        tokens.append(int((below > number * below[-1]).argmax()))
    return tokens


@pytest.mark.parametrize("vocabulary", [60, 5000])
@pytest.mark.parametrize("levels", [None, 40, 3])
def test_tokens_are_drawn_by_the_definition_ties_included(vocabulary: int, levels: int | None) -> None:
    logits = torch.randn(100, vocabulary, generator=torch.Generator().manual_seed(vocabulary))
    if levels is not None:  # many equal logits; with few levels more than there are candidates
        logits = (logits * levels / 6).round() * 6 / levels
    numbers = numbers_of([None if row % 7 == 0 else row for row in range(100)], 1)
    for top_k, temperature in ((50, 1.0), (7, 0.7), (1, 2.0)):
        assert draw(logits, numbers, top_k, temperature).tolist() == whole(logits, numbers, top_k, temperature)


ODD = """[PAD] [UNK] [CLS] [SEP] [MASK] a the ' s t 's n't 've . , ? ! .x ''re '' do not dog ##s ##' ##. - é ##é"""


def test_texts_and_tokens_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(ODD.split()) + "\n")
    for place in (tmp_path, MINI / "captioner"):
        reference, ours = Reference.tokenizer_of(str(place)), WordPieces(place)
        some = np.random.default_rng(0).integers(0, len(reference) + 3, (200, 12)).tolist()
        for ids in [[], [0, 2], *some]:
            expected = reference.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True)
            assert ours.decode(ids) == expected.strip()
        for text in ("A dog's [SEP] do not, Été!", "", "it isn't there 12", "DOGS\n\tdog"):
            assert ours.encode([text])[0][0].tolist() == reference(text, split_special_tokens=True)["input_ids"]


@pytest.mark.parametrize("size", [(40, 30), (200, 150), (7, 300)])
def test_pixels_are_the_processor_s_bit_for_bit(folder: str, size: tuple[int, int]) -> None:
    processor = Reference(folder).processor
    processor.image_mean, processor.rescale_factor, processor.resample = [0.1, 0.2, 0.3], 1 / 128, 2
    settings = PictureSettings(8 * GRID, 2, rescale_factor=1 / 128, image_mean=[0.1, 0.2, 0.3])
    reader = PictureReader(settings, torch.device("cpu"), torch.float32)
    pictures = [photo(seed, *size) for seed in range(3)]
    pixels = reader.normalise(reader.read(pictures)).permute(0, 3, 1, 2)
    expected = processor(images=[picture.pixels for picture in pictures], return_tensors="pt")["pixel_values"]
    assert torch.equal(pixels, expected)


def test_a_picture_is_resized_and_encoded_once(folder: str, captions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures, resized = [noise_picture(seed) for seed in range(60, 65)], list[Any]()
    resize = PILImage.Image.resize

    def counted(self: Any, *args: Any, **options: Any) -> Any:
        resized.append(self)
        return resize(self, *args, **options)

    monkeypatch.setattr(PILImage.Image, "resize", counted)
    matcher, writer = load(folder, max_batch=2), captioner(captions)
    for _ in range(2):
        matcher.match([MatchRequest(picture, text) for picture in pictures for text in TEXTS])
        matcher.similarity([SimilarityRequest(picture, "a dog") for picture in pictures])
        writer.caption([CaptionRequest(picture, (0, 3), seed) for picture in pictures for seed in range(2)])
    assert matcher.stats.vision_forwards == writer.stats.vision_forwards == len(resized) == 5


def test_the_feature_cache_keeps_to_its_bytes(folder: str) -> None:
    feature_bytes = (1 + GRID**2) * 32 * 4
    matcher = load(folder, feature_cache_bytes=2 * feature_bytes, max_batch=2)
    zero, first, second = ([SimilarityRequest(picture, "a dog")] for picture in PICTURES[:3])
    for requests in (zero, first, zero, second, zero):  # the least recently used is dropped: first
        matcher.similarity(requests)
    assert matcher.stats.vision_forwards == 3
    matcher.similarity(first)
    assert matcher.stats.vision_forwards == 4


def test_batches_are_halved_when_memory_runs_out() -> None:
    sizes: list[int] = []

    def double(rows: Sequence[int]) -> list[int]:
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [2 * row for row in rows]

    released: list[int] = []
    assert run_in_batches(double, list(range(7)), 7, lambda: released.append(1)) == [2 * row for row in range(7)]
    assert sizes[0] == 7 and max(sizes[-3:]) <= 2 and released


def test_a_network_that_fails_is_a_model_error_of_one_line() -> None:
    def fail(rows: Sequence[int]) -> list[int]:
        raise RuntimeError("odd\nx")

    with pytest.raises(ModelError, match=r"^BLIP failed: odd.*\.$"):
        run_in_batches(fail, [1], 1)
