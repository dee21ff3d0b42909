"""What BLIP does on a GPU: recorded steps, run here on the CPU, and kernels where there is one."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import BLOCK, MATCHES, PICTURES
from tiny import WORDS, write_blip
from torch.nn import functional

from codevqa.models.blip import BlipCaptioner, BlipMatcher
from codevqa.models.blip.caption_decoder import CaptionDecoder
from codevqa.models.blip.caption_steps import CaptionBatch
from codevqa.models.blip.checkpoint import Checkpoint, load_checkpoint
from codevqa.models.blip.gpu import kernels
from codevqa.models.blip.tokens import CaptionRules, draw, numbers_of
from codevqa.models.cuda_graphs import graphs_enabled
from codevqa.models.gpu_compiler import HERE
from codevqa.models.protocols import CaptionRequest

WIDTH = 32


@pytest.fixture(scope="module")
def captioner(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = write_blip(tmp_path_factory.mktemp("blip"), "captioner", ends=3)
    return load_checkpoint(folder, "captioner", device="cpu", dtype=None)


def rules(at: Checkpoint, **changes: Any) -> CaptionRules:
    opening = (at.dec_id, *(WORDS.index(word) for word in ("a", "picture", "of")))
    settings = {"min_length": 10, "max_length": 20, "top_k": 50, "temperature": 1.0, **changes}
    return CaptionRules(opening, at.tokenizer.end, at.tokenizer.pad, **settings)


def batch(by: CaptionRules, count: int, seed: int, patches: int = 3) -> tuple[Any, ...]:
    """Captions over random patches, some of which see fewer than others, some of them greedy."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(9, WIDTH, generator=generator)
    index = torch.randint(9, (count, patches), generator=generator)
    counts = torch.randint(1, patches + 1, (count,), generator=generator) if seed % 2 else None
    return (
        embeddings,
        index,
        counts,
        numbers_of([None if row % 5 == 4 else seed + row for row in range(count)], by.steps),
    )


class Record:
    """In the place of CUDA graphs: runs a function over whatever lies there, and again where it is replayed."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def __call__(self, function: Callable[[], None]) -> Callable[[], None]:
        function()
        self.log.append("recorded")

        def replay() -> None:
            self.log.append("ran")
            function()

        return replay


@pytest.mark.parametrize("changes", [{}, {"min_length": 0, "top_k": 3}, {"max_length": 5, "min_length": 0}], ids=str)
def test_steps_write_what_the_cpu_writes(captioner: Checkpoint, changes: Any) -> None:
    by, network, record = rules(captioner, **changes), captioner.model.text_decoder, Record()
    ours = CaptionDecoder(network, by, None, record)
    for count, seed in ((60, 1), (3, 2), (37, 3), (1, 5)):
        inputs = batch(by, count, seed)
        assert torch.equal(ours.write(*inputs), CaptionDecoder(network, by).write(*inputs))
    assert record.log


def test_a_cpu_computes_no_caption_that_has_ended(captioner: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, rows = CaptionDecoder(captioner.model.text_decoder, rules(captioner)), list[int]()
    read = decoder.steps.read

    def noted(batch: CaptionBatch, number: int) -> None:
        rows.append(len(batch.done))
        read(batch, number)

    monkeypatch.setattr(decoder.steps, "read", noted)
    tokens = decoder.write(*batch(decoder.steps.rules, 60, 1))
    under_way = (tokens == decoder.steps.rules.end).cumsum(1).eq(0).sum(0).tolist()
    assert rows == [count for count in under_way if count] and rows[-1] < 60


def test_stretches_are_recorded_once_and_left_out_when_all_rows_have_ended(captioner: Checkpoint) -> None:
    by, network, record = rules(captioner), captioner.model.text_decoder, Record()
    decoder, bias = CaptionDecoder(network, by, None, record), network.cls.predictions.decoder.bias
    end, before = WORDS.index("[SEP]"), bias.clone()
    try:
        bias[end] -= 100
        assert (decoder.write(*batch(by, 8, 0)) != by.pad).all()
        # 16 steps after a prompt of 4 tokens: the seventh is the first that may end a caption, then three at a time.
        assert record.log.count("recorded") == 4
        del record.log[:]
        bias[end] += 200
        assert (decoder.write(*batch(by, 5, 0))[:, 6] == by.end).all()
        assert record.log == ["ran"]
    finally:
        bias.copy_(before)


def test_a_recording_keeps_all_that_it_reads_and_writes(captioner: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    # A graph knows addresses alone: memory that nobody else keeps is given to others, and the replay dies of it.
    references: list[Any] = []

    def record(function: Callable[[], None]) -> Callable[[], None]:
        function()
        return lambda: None  # as a graph, it does not refer to the function

    by = rules(captioner)
    decoder = CaptionDecoder(captioner.model.text_decoder, by, None, record)
    blank = decoder.steps.blank_logits

    def noted(rows: int) -> torch.Tensor:
        logits = blank(rows)
        references.append(weakref.ref(logits))
        return logits

    monkeypatch.setattr(decoder.steps, "blank_logits", noted)
    decoder.write(*batch(by, 8, 2))
    gc.collect()
    assert references and all(logits() is not None for logits in references)


def test_recording_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, on in (("", True), ("0", False)):
        monkeypatch.setenv("CODEVQA_CUDA_GRAPHS", value)
        assert graphs_enabled(torch.device("cuda")) is on and not graphs_enabled(torch.device("cpu"))


gpu = pytest.mark.skipif(not (HERE and torch.cuda.is_available()), reason="needs Triton and a CUDA device")
BOUND = {torch.float32: 2e-6, torch.bfloat16: 5e-3}
TYPES = pytest.mark.parametrize("dtype", list(BOUND), ids=["float32", "bfloat16"])


def apart(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def noise(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(len(shape))
    return torch.randn(*shape, device="cuda", dtype=dtype)


@gpu
@TYPES
@pytest.mark.parametrize(
    "shape", [(3, 4, 0, 12, 64, 20), (5, 1, 7, 12, 64, 20), (2, 1, 19, 3, 16, 20), (2, 3, 0, 2, 32, 40)]
)
def test_attention_to_a_caption_itself(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    rows, count, start, heads, depth, length = shape
    joined, own = noise(rows, count, 3, heads, depth, dtype=dtype), noise(rows, 2, heads, length, depth, dtype=dtype)
    kept = own.clone()
    kept[:, :, :, start : start + count] = joined[:, :, 1:].permute(0, 2, 3, 1, 4)
    keys, values = kept[:, :, :, : start + count].float().unbind(1)
    expected = functional.scaled_dot_product_attention(
        joined[:, :, 0].transpose(1, 2).float(), keys, values, is_causal=count > 1
    )
    assert apart(kernels.attend_own(joined, own, start), expected.transpose(1, 2).flatten(2)) < BOUND[dtype]
    assert torch.equal(own, kept)


@gpu
@TYPES
@pytest.mark.parametrize(
    "shape", [(3, 4, 20, 12, 64, False), (5, 1, 24, 12, 64, True), (2, 1, 577, 3, 16, False), (2, 2, 80, 4, 32, True)]
)
def test_attention_to_patches(dtype: torch.dtype, shape: tuple[int, int, int, int, int, bool]) -> None:
    rows, count, patches, heads, depth, masked = shape
    queries, seen = noise(rows, count, heads * depth, dtype=dtype), noise(rows, patches, 2, heads, depth, dtype=dtype)
    hidden = None
    if masked:
        hidden = torch.zeros(rows, 1, 1, patches, device="cuda", dtype=dtype)
        hidden[0, ..., patches // 2 :] = -torch.inf
    keys, values = seen.float().transpose(1, 3).unbind(2)
    expected = functional.scaled_dot_product_attention(
        queries.float().view(rows, count, heads, depth).transpose(1, 2),
        keys,
        values,
        attn_mask=None if hidden is None else hidden.float(),
    )
    actual = kernels.attend_seen(queries, seen, hidden)
    assert apart(actual, expected.transpose(1, 2).flatten(2)) < BOUND[dtype]


@gpu
@TYPES
@pytest.mark.parametrize("vocabulary", [500, 30_524])
def test_tokens_are_drawn_as_on_the_cpu(dtype: torch.dtype, vocabulary: int) -> None:
    logits = 3 * noise(256, vocabulary, dtype=dtype)
    logits[1, : vocabulary // 2] = -torch.inf
    logits[2] = 1
    numbers = torch.rand(256, 3, dtype=torch.float64, device="cuda")[:, 1:2]
    numbers[0] = -1
    expected = draw(logits.cpu(), numbers.cpu(), 50, 0.8)
    tokens = draw(logits, numbers, 50, 0.8).cpu()
    # A number within rounding of a boundary may fall on either side.
    assert int((tokens == expected).sum()) >= 254 and tokens[0] == expected[0]


@gpu
def test_the_gpu_gives_the_numbers_of_the_cpu(tmp_path: Any) -> None:
    folder = write_blip(tmp_path / "matcher", "matcher")
    cpu_matches, other = (
        BlipMatcher.from_pretrained(folder, device=device, dtype="float32", block=BLOCK).match(MATCHES)
        for device in ("cpu", "cuda")
    )
    for ours, theirs in zip(cpu_matches, other, strict=True):
        np.testing.assert_allclose(ours.relevance, theirs.relevance, rtol=0, atol=1e-3 * ours.relevance.max())
        assert ours.logit == pytest.approx(theirs.logit, abs=1e-2)
    folder = write_blip(tmp_path / "captioner", "captioner", ends=3)
    asked = [CaptionRequest(PICTURES[seed % 4], (0, 5, 9), seed) for seed in range(20)]
    written = [
        BlipCaptioner.from_pretrained(folder, device=device, dtype="float32").token_ids(asked)
        for device in ("cpu", "cuda")
    ]
    assert sum(ours == theirs for ours, theirs in zip(*written, strict=True)) >= 18
