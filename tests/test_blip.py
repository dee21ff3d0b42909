"""The BLIP back end on tiny random networks loaded from disk: batches, seeds, gradients, caching, loading errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tiny import GRID, WORDS, noise_picture, write_blip

from codevqa.core.errors import ModelError, SetupError
from codevqa.core.images import Picture
from codevqa.models.base import Captioner, CaptionRequest, Matcher, MatchRequest, SimilarityRequest
from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.batches import run_in_batches
from codevqa.models.blip.sampling import draw, numbers_of

PICTURES = [noise_picture(seed) for seed in range(3)]
TEXTS = ["a dog", "is there any yellow ball on the large car", "two cats in the park", "red", "a dog"]
BLOCK = 1
SEP = WORDS.index("[SEP]")


@pytest.fixture(scope="module")
def matcher_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "matcher", "matcher")


@pytest.fixture(scope="module")
def captioner_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "captioner", "captioner", seed=1)


def load_matcher(folder: str, **options: object) -> BlipMatcher:
    return BlipMatcher.from_pretrained(folder, device="cpu", **{"block": BLOCK, **options})  # type: ignore[arg-type]


def load_captioner(folder: str, **options: object) -> BlipCaptioner:
    return BlipCaptioner.from_pretrained(folder, device="cpu", **options)  # type: ignore[arg-type]


def pairs() -> list[MatchRequest]:
    focuses = [None, "any yellow", "cats", None, "dog"]
    return [
        MatchRequest(PICTURES[index % 3], text, focus)
        for index, (text, focus) in enumerate(zip(TEXTS, focuses, strict=True))
    ]


def test_they_are_a_matcher_and_a_captioner(matcher_folder: str, captioner_folder: str) -> None:
    matcher: Matcher = load_matcher(matcher_folder)
    captioner: Captioner = load_captioner(captioner_folder)
    assert (matcher.name, matcher.grid) == (matcher_folder, GRID)
    assert (captioner.name, captioner.grid) == (captioner_folder, GRID)


# Batches


def test_a_batch_of_matches_equals_single_ones(matcher_folder: str) -> None:
    together = load_matcher(matcher_folder).match(pairs())
    alone = [load_matcher(matcher_folder).match([request])[0] for request in pairs()]
    for one, other in zip(together, alone, strict=True):
        assert one.relevance.shape == (GRID, GRID) and one.relevance.dtype == np.float32
        assert one.relevance.min() >= 0 and one.relevance.max() > 0
        np.testing.assert_allclose(one.relevance, other.relevance, rtol=1e-4, atol=1e-7)
        assert one.logit == pytest.approx(other.logit, abs=1e-5)
    assert len({round(match.logit, 4) for match in together}) == len(together)


def test_batches_of_two_keep_the_order(matcher_folder: str) -> None:
    whole = load_matcher(matcher_folder).match(pairs())
    chunked = load_matcher(matcher_folder, max_batch=2).match(pairs())
    assert [match.logit for match in chunked] == pytest.approx([match.logit for match in whole], abs=1e-5)


def test_a_batch_of_similarities_equals_single_ones(matcher_folder: str) -> None:
    matcher = load_matcher(matcher_folder)
    requests = [SimilarityRequest(picture, text) for picture in PICTURES for text in TEXTS]
    together = matcher.similarity(requests)
    assert together == pytest.approx([matcher.similarity([request])[0] for request in requests], abs=1e-5)
    assert all(-1 <= score <= 1 for score in together)
    assert len({round(score, 4) for score in together}) == len(PICTURES) * len(set(TEXTS))


def test_empty_batches(matcher_folder: str, captioner_folder: str) -> None:
    matcher = load_matcher(matcher_folder)
    assert matcher.match([]) == [] and matcher.similarity([]) == []
    assert load_captioner(captioner_folder).caption([]) == []


# GradCAM


def full_gradcam(matcher: BlipMatcher, picture: Picture, text: str) -> tuple[np.ndarray, np.ndarray]:
    """GradCAM by the definition: autograd through the whole network, vision tower included."""
    at = matcher._at
    model = at.model
    model.requires_grad_(True)
    try:
        pixels = at.processor(images=picture.pixels, return_tensors="pt")["pixel_values"]
        encoded = at.tokenizer(text, return_tensors="pt")
        encoded["input_ids"][:, 0] = at.tokenizer.convert_tokens_to_ids("[ENC]")
        output = model.text_encoder(
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            encoder_hidden_states=model.vision_model(pixel_values=pixels).last_hidden_state,
            output_attentions=True,
        )
        logits = model.itm_head(output.last_hidden_state[:, 0])
        probabilities = output.cross_attentions[BLOCK]
        (gradient,) = torch.autograd.grad(logits[0, 1], probabilities)
    finally:
        model.requires_grad_(False)
    cam = (probabilities * gradient.clamp(min=0))[0, :, :, 1:].mean(0).detach()
    return cam.reshape(-1, GRID, GRID).numpy(), logits[0].detach().numpy()


@pytest.mark.parametrize("fast", [True, False])
def test_gradcam_through_the_text_alone_is_the_full_one(matcher_folder: str, fast: bool) -> None:
    matcher = load_matcher(matcher_folder, fast=fast)
    for request, (maps, logits) in zip(pairs(), matcher.token_maps(pairs()), strict=True):
        expected, expected_logits = full_gradcam(matcher, request.picture, request.text)
        assert maps.shape == expected.shape
        np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(logits, expected_logits, atol=1e-5)


def test_what_is_averaged(matcher_folder: str) -> None:
    text = "two cats in the park"  # [ENC] two cat ##s in the park [SEP]
    picture = PICTURES[0]
    ((maps, _),) = load_matcher(matcher_folder).token_maps([MatchRequest(picture, text)])
    assert len(maps) == 8

    def relevance(focus: str | None, **options: object) -> np.ndarray:
        return load_matcher(matcher_folder, **options).match([MatchRequest(picture, text, focus)])[0].relevance

    words = maps[1:-1].mean(0)
    for found, expected in (
        (relevance(None), words),
        (relevance(None, average="all"), maps.mean(0)),
        (relevance("cats"), maps[2:4].mean(0)),
        (relevance("The park", average="all"), maps[5:7].mean(0)),
        (relevance("park cats"), maps[[2, 3, 6]].mean(0)),  # which do not follow one another
        (relevance(" "), words),
        (relevance("dog", average="all"), words),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)


def test_texts_without_words_or_with_too_many(matcher_folder: str) -> None:
    matcher = load_matcher(matcher_folder, max_length=9)
    empty, long = matcher.match([MatchRequest(PICTURES[0], ""), MatchRequest(PICTURES[0], "dog " * 100, "dog")])
    assert np.isfinite(empty.relevance).all() and empty.relevance.max() > 0
    assert np.isfinite(long.relevance).all() and long.relevance.max() > 0


def test_special_tokens_in_a_text_stay_text(matcher_folder: str) -> None:
    ((maps, _),) = load_matcher(matcher_folder).token_maps([MatchRequest(PICTURES[0], "a [SEP] dog")])
    assert len(maps) == 7  # [ENC] a [ SEP ] dog [SEP]


def test_a_block_outside_the_model(matcher_folder: str) -> None:
    with pytest.raises(SetupError, match="blocks 0 to 2, not 7"):
        BlipMatcher.from_pretrained(matcher_folder, device="cpu")
    with pytest.raises(SetupError, match="average"):
        load_matcher(matcher_folder, average="median")


# Vision features


def test_a_picture_is_encoded_once(matcher_folder: str, captioner_folder: str) -> None:
    matcher, captioner = load_matcher(matcher_folder), load_captioner(captioner_folder)
    for _ in range(2):
        matcher.match(pairs())
        matcher.similarity([SimilarityRequest(picture, "a dog") for picture in PICTURES])
        captioner.caption([CaptionRequest(picture, None, seed) for picture in PICTURES for seed in range(2)])
        captioner.caption([CaptionRequest(picture, (0, 3)) for picture in PICTURES])
    assert matcher.stats.vision_forwards == captioner.stats.vision_forwards == len(PICTURES)


def test_the_feature_cache_keeps_to_its_bytes(matcher_folder: str) -> None:
    one = (1 + GRID**2) * 32 * 4
    matcher = load_matcher(matcher_folder, feature_cache_bytes=2 * one, max_batch=2)
    zero, first, second = ([SimilarityRequest(picture, "a dog")] for picture in PICTURES)
    for requests in (zero, first, zero, second):  # the least recently used is dropped: first
        matcher.similarity(requests)
        assert 0 < matcher._vision.kept_bytes <= 2 * one
    assert matcher.stats.vision_forwards == 3
    matcher.similarity(zero)
    assert matcher.stats.vision_forwards == 3
    matcher.similarity(first)
    assert matcher.stats.vision_forwards == 4


def test_without_a_cache_a_batch_still_encodes_a_picture_once(matcher_folder: str) -> None:
    matcher = load_matcher(matcher_folder, feature_cache_bytes=0, max_batch=10)
    matcher.match([MatchRequest(PICTURES[index % 3], text) for index, text in enumerate(WORDS[5:35])])
    assert matcher.stats.vision_forwards == 3 and matcher._vision.kept_bytes == 0


# Captions


def captions_wanted() -> list[CaptionRequest]:
    return [
        CaptionRequest(PICTURES[0], None, 1),
        CaptionRequest(PICTURES[1], (0, 5, 9), 1),
        CaptionRequest(PICTURES[0], (1, 2), None),
        CaptionRequest(PICTURES[2], (3, 4, 15), 2),
        CaptionRequest(PICTURES[1], None, None),
        CaptionRequest(PICTURES[0], (0, 5, 9), None),
        CaptionRequest(PICTURES[1], (0, 5, 9), 7),
        CaptionRequest(PICTURES[1], (0, 5, 9), 1),
    ]


def test_a_caption_does_not_depend_on_its_batch(captioner_folder: str) -> None:
    captioner = load_captioner(captioner_folder)
    together = captioner.token_ids(captions_wanted())
    assert together == [captioner.token_ids([request])[0] for request in captions_wanted()]
    assert together == load_captioner(captioner_folder, max_batch=2).token_ids(captions_wanted())
    assert together == captioner.token_ids(captions_wanted()[::-1])[::-1]
    assert together[1] == together[7] != together[6]
    assert together[1] != together[5]
    # One a request, of text: no prompt, no special tokens.
    for caption in captioner.caption(captions_wanted()):
        assert caption == caption.strip() and "[" not in caption


def test_patches_change_a_caption_and_their_order_does_not(captioner_folder: str) -> None:
    captioner = load_captioner(captioner_folder)
    several = [captioner.token_ids([CaptionRequest(PICTURES[0], (patch,), 3)])[0] for patch in range(GRID**2)]
    assert len({tuple(ids) for ids in several}) > 1
    requests = [CaptionRequest(PICTURES[0], patches, 3) for patches in ((2, 9, 14), (14, 2, 9))]
    assert torch.equal(captioner.prompt_logits(requests[0]), captioner.prompt_logits(requests[1]))


def test_chosen_patches_are_those_after_cls(captioner_folder: str) -> None:
    captioner = load_captioner(captioner_folder)
    features = captioner._vision.features([PICTURES[0]])[PICTURES[0].key]
    kept = {PICTURES[0].key: features}
    embeddings, index = captioner._shown([CaptionRequest(PICTURES[0], (0, 15))], 2, kept)
    assert torch.equal(embeddings[index[0]], features[[1, 16]])
    embeddings, index = captioner._shown([CaptionRequest(PICTURES[0])], 17, kept)
    assert torch.equal(embeddings[index[0]], features)


@pytest.mark.parametrize("patches", [(), (0, GRID**2), (-1, 2)])
def test_patches_that_are_not_there(captioner_folder: str, patches: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="Patches"):
        load_captioner(captioner_folder).caption([CaptionRequest(PICTURES[0], patches)])


def test_lengths_count_the_prompt(captioner_folder: str) -> None:
    captioner = load_captioner(captioner_folder, min_length=7, max_length=9)
    with torch.no_grad():  # [SEP] becomes likely, so that captions end as soon as they may, or a little later
        captioner._at.model.text_decoder.cls.predictions.decoder.bias[SEP] += 4
    drawn = captioner.token_ids([CaptionRequest(PICTURES[0], (1,), seed) for seed in range(100)])
    # The prompt, [DEC] a picture of, has 4 tokens: 3 to 5 follow, and [SEP] may come after the third.
    ends = [ids.index(SEP) if SEP in ids else len(ids) for ids in drawn]
    assert (min(ends), max(ends)) == (3, 5)
    with pytest.raises(SetupError, match="tokens"):
        load_captioner(captioner_folder, max_length=4)


def test_a_caption_is_as_long_as_its_request_says_whatever_else_is_in_its_batch(captioner_folder: str) -> None:
    captioner = load_captioner(captioner_folder)  # 10 to 20 tokens
    lengths = (None, (20, 30), (10, 20), (0, 6))
    requests = [CaptionRequest(PICTURES[0], (1, 7), 3, tokens) for tokens in lengths]
    own, long, same, short = captioner.token_ids(requests)
    assert own == same != long
    assert 20 - 4 <= len(long) <= 30 - 4 and len(short) <= 6 - 4  # the prompt has 4 tokens
    assert long == load_captioner(captioner_folder, min_length=20, max_length=30).token_ids(requests[:1])[0]
    for tokens in ((30, 20), (0, 4), (10, 99)):
        with pytest.raises(SetupError, match="tokens"):
            captioner.caption([CaptionRequest(PICTURES[0], (1, 7), 3, tokens)])


def frequencies(scores: Sequence[float], top_k: int, temperature: float, draws: int) -> np.ndarray:
    second = numbers_of(list(range(draws)), 2)[:, 1:]
    chosen = draw(torch.tensor([scores] * draws), second, top_k, temperature)
    return np.bincount(chosen.numpy(), minlength=len(scores)) / draws


def test_sampling_follows_the_top_k_softmax() -> None:
    scores, top_k, temperature, draws = [0.5, 2.0, -1.0, 1.0, 0.0, 1.5, -3.0], 4, 0.8, 20_000
    kept = np.argsort(scores)[-top_k:]
    shares = np.zeros(len(scores))
    shares[kept] = np.exp(np.array(scores)[kept] / temperature)
    shares /= shares.sum()
    found = frequencies(scores, top_k, temperature, draws)
    assert found[shares == 0].sum() == 0
    chi_square = draws * ((found - shares)[kept] ** 2 / shares[kept]).sum()
    assert chi_square < 16.3  # 0.1 % of honest samplers with 3 degrees of freedom are beyond


def test_rows_without_a_seed_stay_greedy() -> None:
    scores = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    chosen = draw(scores, numbers_of([None, 4, None], 1), 5, 1.0)
    assert chosen[[0, 2]].tolist() == scores[[0, 2]].argmax(-1).tolist()
    assert int(chosen[1]) in scores[1].topk(5).indices.tolist()


def test_any_integer_is_a_seed(captioner_folder: str) -> None:
    seeds = (-1, 0, 2**63, 2**70 + 3)
    captions = load_captioner(captioner_folder).caption([CaptionRequest(PICTURES[0], None, seed) for seed in seeds])
    assert len(captions) == len(seeds)


# Memory


def test_batches_are_halved_when_memory_runs_out() -> None:
    sizes: list[int] = []

    def double(rows: Sequence[int]) -> list[int]:
        sizes.append(len(rows))
        if len(rows) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return [2 * row for row in rows]

    released: list[int] = []
    found = run_in_batches(double, list(range(10)), 8, lambda: released.append(len(sizes)))
    assert found == [2 * row for row in range(10)]
    assert sizes == [8, 4, 2, 2, 2, 2, 2] and released == [1, 2]


def test_a_row_too_large_and_other_failures_are_model_errors() -> None:
    def starve(rows: Sequence[int]) -> list[int]:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")

    def fail(rows: Sequence[int]) -> list[int]:
        raise RuntimeError("mat1 and mat2 differ\nmore")

    with pytest.raises(ModelError, match="out of memory on a single row"):
        run_in_batches(starve, [1, 2], 2, lambda: None)
    with pytest.raises(ModelError, match=r"mat1 and mat2 differ[.]$"):
        run_in_batches(fail, [1, 2], 2, lambda: None)
