"""Captions are those of transformers' own forward pass and its ``generate``, however they are decoded."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from blip_kit import generate
from tiny import GRID, WORDS, noise_picture, write_blip
from transformers import BertTokenizer

from codevqa.core.errors import ModelError, SetupError
from codevqa.models.base import CaptionRequest
from codevqa.models.blip import BlipCaptioner, choice
from codevqa.models.blip.caption_text import CaptionText
from codevqa.models.blip.fast.caption_decoder import FastCaptionDecoder
from codevqa.models.blip.gpu import caption_decoder as gpu_caption_decoder
from codevqa.models.blip.gpu.caption_decoder import GpuCaptionDecoder
from codevqa.models.blip.gpu.caption_steps import CaptionSteps
from codevqa.models.blip.plain import PlainCaptionDecoder
from codevqa.models.blip.sampling import draw, numbers_of
from codevqa.models.options import CaptionerOptions
from codevqa.models.seeded_numbers import seeded_numbers
from codevqa.presets.checkpoints import resolve
from codevqa.presets.presets import preset

PICTURES = [noise_picture(seed) for seed in range(4)]
SEP = WORDS.index("[SEP]")


def generated(captioner: BlipCaptioner, requests: Sequence[CaptionRequest]) -> list[list[int]]:
    """What ``generate`` writes: batches of equally many patches, as it knows no mask."""
    found: dict[int, list[int]] = {}
    counts = {len(request.patches or ()) for request in requests}
    for count in counts:
        places = [place for place, request in enumerate(requests) if len(request.patches or ()) == count]
        found |= dict(zip(places, generate(captioner, [requests[place] for place in places]), strict=True))
    return [found[place] for place in range(len(requests))]


def wanted(count: int, seed: int, most: int = GRID**2) -> list[CaptionRequest]:
    rng = np.random.default_rng(seed)
    requests = []
    for _ in range(count):
        patches = None if rng.random() < 0.2 else tuple(rng.permutation(GRID**2)[: rng.integers(1, most + 1)].tolist())
        number = None if rng.random() < 0.2 else int(rng.integers(2**63))
        requests.append(CaptionRequest(PICTURES[rng.integers(len(PICTURES))], patches, number))
    return requests


def alone(captioner: BlipCaptioner, requests: Sequence[CaptionRequest]) -> list[list[int]]:
    """What transformers' own forward pass writes, over the same network and by the same rules."""
    decoder = PlainCaptionDecoder(captioner._at.model.text_decoder, captioner._rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captioner, "_decoder", decoder)
        patch.setattr(captioner, "_max_batch", None)
        return captioner.token_ids(requests)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_blip(tmp_path_factory.mktemp("blip") / "captioner", "captioner", seed=1)


def decoding_as_on_a_gpu(captioner: BlipCaptioner, record: Any = None) -> BlipCaptioner:
    captioner._decoder = GpuCaptionDecoder(captioner._at.model.text_decoder, captioner._rules, record)
    return captioner


def load(folder: str, **options: Any) -> BlipCaptioner:
    captioner = BlipCaptioner.from_pretrained(folder, device="cpu", **options)
    with torch.no_grad():  # [SEP] becomes likely, so that captions end at many lengths
        captioner._at.model.text_decoder.cls.predictions.decoder.bias[SEP] += 3
    return captioner


# The same tokens


OPTIONS: list[CaptionerOptions] = [
    {},
    {"min_length": 0, "temperature": 0.5},
    {"min_length": 15, "max_length": 19, "top_k": 3},
    {"min_length": 0, "max_length": 5, "top_k": 1},
    {"top_k": 500, "temperature": 3.0, "prompt": ""},
    {"max_batch": 3, "max_length": 40, "temperature": 2.0},
]


@pytest.mark.parametrize("options", [*OPTIONS[:-1], pytest.param(OPTIONS[-1], marks=pytest.mark.slow)], ids=str)
def test_the_tokens_are_those_of_transformers(folder: str, options: CaptionerOptions) -> None:
    captioner = load(folder, **options)
    requests = wanted(100, seed=len(str(options)))
    ours = captioner.token_ids(requests)
    assert ours == alone(captioner, requests)
    lengths = {len(ids) for ids in ours}
    assert max(lengths) <= captioner._rules.steps
    if captioner._rules.steps > 2:
        assert len(lengths) > 1  # some ended early


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_transformers_forward_is_called_as_generate_calls_it(folder: str, options: CaptionerOptions) -> None:
    captioner = load(folder, fast=False, **options)
    requests = wanted(30, seed=4)
    ours = captioner.token_ids(requests)
    assert ours == generated(captioner, requests)
    assert len({len(ids) for ids in ours}) > 1


def test_the_embedded_captioner_writes_what_transformers_writes() -> None:
    embedded = preset("mini")
    name = resolve(embedded.captioner.partition(":")[2])
    for options in (dict(embedded.options["captioner"]), {}):
        captioner = BlipCaptioner.from_pretrained(name, device="cpu", **options)
        rng = np.random.default_rng(3)
        requests = [
            CaptionRequest(PICTURES[place % 4], tuple(rng.permutation(captioner.grid**2)[:20].tolist()), place)
            for place in range(40)
        ]
        assert captioner.token_ids(requests) == alone(captioner, requests)


def test_the_prompt_s_logits_are_those_of_transformers(folder: str) -> None:
    captioner = load(folder)
    features = captioner._vision.features([PICTURES[0]])[PICTURES[0].key]
    network = captioner._at.model.text_decoder
    for patches in (None, (0, 5, 15)):
        seen = features if patches is None else features[[1 + patch for patch in patches]]
        with torch.inference_mode():
            expected = network(
                input_ids=torch.tensor([captioner._rules.prompt]), encoder_hidden_states=seen[None], use_cache=False
            ).logits[0]
        for one in (captioner, load(folder, fast=False), decoding_as_on_a_gpu(load(folder))):
            found = one.prompt_logits(CaptionRequest(PICTURES[0], patches))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_bfloat16(folder: str) -> None:
    captioner = load(folder, dtype="bfloat16")
    requests = wanted(60, seed=5)
    ours, theirs = captioner.token_ids(requests), alone(captioner, requests)
    # Rounding differs, and one token changes all that follow.
    assert sum(one[0] == other[0] for one, other in zip(ours, theirs, strict=True)) > 50


# Recorded steps, run here without a GPU


def run_as_recorded(captioner: BlipCaptioner) -> list[str]:
    """Makes the captioner decode as on a GPU, stretch by stretch; returns what it recorded and ran."""
    log: list[str] = []

    def record(function: Callable[[], None]) -> Callable[[], None]:
        function()  # recording runs it over whatever lies there
        log.append("recorded")

        def replay() -> None:
            log.append("ran")
            function()

        return replay

    decoding_as_on_a_gpu(captioner, record)
    return log


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"min_length": 0}, {"min_length": 20}, {"max_length": 5, "min_length": 0}])
def test_recorded_steps_write_the_same(folder: str, options: dict[str, Any]) -> None:
    expected, captioner = load(folder, **options), load(folder, **options)
    log = run_as_recorded(captioner)
    for count, seed in ((60, 1), (3, 2), (37, 3), (60, 4), (1, 5)):
        requests = wanted(count, seed)
        assert captioner.token_ids(requests) == expected.token_ids(requests)
    assert log.count("recorded") < log.count("ran")


def test_stretches_are_recorded_once_and_left_out_when_all_rows_have_ended(folder: str) -> None:
    captioner = load(folder, min_length=10)
    log = run_as_recorded(captioner)
    requests = [CaptionRequest(PICTURES[0], (1, 2), seed) for seed in range(8)]
    bias = captioner._at.model.text_decoder.cls.predictions.decoder.bias
    with torch.no_grad():
        bias[SEP] -= 100
    assert {len(ids) for ids in captioner.token_ids(requests)} == {16}
    # 16 steps after a prompt of 4 tokens: the seventh is the first that may end a caption, then three at a time.
    assert log.count("recorded") == 4
    del log[:]
    with torch.no_grad():
        bias[SEP] += 200
    assert {len(ids) for ids in captioner.token_ids(requests[:5])} == {7}
    assert log == ["ran"]


def test_rows_without_a_caption_keep_nobody_waiting(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = load(folder)
    with torch.no_grad():  # no caption ends before it must
        captioner._at.model.text_decoder.cls.predictions.decoder.bias[SEP] -= 100
    run_as_recorded(captioner)
    assert isinstance(captioner._decoder, GpuCaptionDecoder)
    begin, done = captioner._decoder.steps.begin, []

    def noted(batch: Any) -> None:
        done.append(batch.done.tolist())
        begin(batch)

    monkeypatch.setattr(captioner._decoder.steps, "begin", noted)
    for rows in (8, 5):
        captioner.token_ids([CaptionRequest(PICTURES[0], (1, 2), seed) for seed in range(rows)])
    assert done[1:] == [[False] * 8, [False] * 5 + [True] * 3]  # after the recording


def test_a_gpu_without_recordings_writes_the_same_and_seldom_waits(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, captioner = load(folder), decoding_as_on_a_gpu(load(folder))
    decoder = captioner._decoder
    assert isinstance(decoder, GpuCaptionDecoder)
    steps: list[int] = []
    step = decoder.steps.step

    def counted(batch: Any, number: int) -> None:
        steps.append(number)
        step(batch, number)

    monkeypatch.setattr(decoder.steps, "step", counted)
    for count, seed in ((60, 1), (3, 2), (1, 5)):
        requests = wanted(count, seed)
        assert captioner.token_ids(requests) == expected.token_ids(requests)
        assert not decoder._kept  # memory is given back
    del steps[:]
    with torch.no_grad():
        captioner._at.model.text_decoder.cls.predictions.decoder.bias[SEP] += 100
    captioner.token_ids([CaptionRequest(PICTURES[0], (1, 2), 1)])
    assert steps == list(range(7))  # each step once: nothing is warmed up


def test_how_each_device_decodes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = load(folder)
    at, rules = captioner._at, captioner._rules
    assert isinstance(captioner._decoder, FastCaptionDecoder)
    # No GPU is needed to see which decoder is made for one.
    monkeypatch.setattr(choice, "_chosen", lambda what, make, plain, probe, at, parts: make(at))
    gpu = dataclasses.replace(at, device=torch.device("cuda"))
    assert isinstance(choice.caption_decoder(gpu, rules, fast=True), GpuCaptionDecoder)
    decoders = []
    for on in (True, False):
        monkeypatch.setattr(gpu_caption_decoder, "enabled", lambda _, on=on: on)
        decoders.append(GpuCaptionDecoder(at.model.text_decoder, rules))

    def stretch() -> None:
        pass

    recorded, launched = decoders
    assert launched._record(stretch) is stretch and launched._limit == 0
    assert recorded._limit > 0


def test_a_recording_keeps_all_that_it_reads_and_writes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A graph knows addresses alone: memory that nobody else keeps is given to others, and the replay dies of it.
    captioner = load(folder)
    decoder = CaptionSteps(captioner._at.model.text_decoder, captioner._rules)
    blank, made = decoder.blank_logits, []

    def noted(rows: int) -> torch.Tensor:
        logits = blank(rows)
        made.append(weakref.ref(logits))
        return logits

    def record(function: Callable[[], None]) -> Callable[[], None]:
        function()
        return lambda: None  # as a graph, it does not refer to the function

    monkeypatch.setattr(decoder, "blank_logits", noted)
    recording = gpu_caption_decoder._Recording(decoder, decoder.blank(8, 2, False), record)
    gc.collect()
    assert made and all(logits() is not None for logits in made) and len(recording._stretches) > 1


def test_recordings_over_the_limit_are_forgotten_together(folder: str) -> None:
    expected, captioner = load(folder), load(folder)
    log = run_as_recorded(captioner)
    decoder = captioner._decoder
    assert isinstance(decoder, GpuCaptionDecoder)
    decoder._limit = 2
    for rows, kept in ((3, 1), (9, 2), (3, 2), (20, 1), (3, 2)):
        requests = [CaptionRequest(PICTURES[0], (1, 2), seed) for seed in range(rows)]
        assert captioner.token_ids(requests) == expected.token_ids(requests)
        assert len(decoder._kept) == kept
    assert log.count("recorded") == 4 * 4


# Work and memory


def test_each_patch_is_projected_once(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = load(folder)
    projected: list[int] = []
    assert isinstance(captioner._decoder, FastCaptionDecoder)
    begin = captioner._decoder._begin

    def counted(patches: torch.Tensor, *rest: Any) -> Any:
        projected.append(len(patches))
        return begin(patches, *rest)

    monkeypatch.setattr(captioner._decoder, "_begin", counted)
    captioner.token_ids([CaptionRequest(PICTURES[0], (seed % 4, 5, 6, 7), seed) for seed in range(20)])
    assert projected == [7]
    captioner.token_ids([CaptionRequest(PICTURES[number], (0, 1, 2), 0) for number in (0, 1, 0)])
    assert projected == [7, 6]


def test_rows_that_have_ended_are_left_out(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = load(folder, min_length=0)
    rows: list[int] = []
    assert isinstance(captioner._decoder, FastCaptionDecoder)
    read = captioner._decoder.read

    def counted(under_way: Any, token: torch.Tensor, position: int) -> torch.Tensor:
        rows.append(len(token))
        return read(under_way, token, position)

    monkeypatch.setattr(captioner._decoder, "read", counted)
    ids = captioner.token_ids([CaptionRequest(PICTURES[0], (1, 2), seed) for seed in range(40)])
    assert len({tuple(row) for row in ids}) > 10
    # What is drawn last, be it the end or not, is not read any more.
    assert rows == [sum(len(row) > step for row in ids) for step in range(1, max(map(len, ids)))]
    assert rows[0] < 40


@pytest.mark.slow
def test_out_of_memory_halves_the_batch(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = load(folder)
    requests = wanted(30, seed=8, most=8)
    expected = captioner.token_ids(requests)
    write, sizes = captioner._decoder.write, []

    def starve(patches: torch.Tensor, index: torch.Tensor, *rest: Any) -> torch.Tensor:
        sizes.append(len(index))
        if len(index) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return write(patches, index, *rest)

    monkeypatch.setattr(captioner._decoder, "write", starve)
    assert captioner.token_ids(requests) == expected
    assert max(sizes) > 4 and sizes[-1] <= 4


def test_positions_that_the_network_does_not_have(folder: str) -> None:
    with pytest.raises(SetupError, match="up to 40 tokens, not 41"):
        load(folder, max_length=41)
    with pytest.raises(ModelError, match="Patches"):
        load(folder).token_ids([CaptionRequest(PICTURES[0], ())])


# Text


ODD = """[PAD] [UNK] [CLS] [SEP] [MASK] a the ' s t 's n't 've . , ? ! .x ''re '' do not dog ##s ##' ##. - é ##é"""


def test_texts_are_those_of_the_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(ODD.split()) + "\n")
    embedded = resolve(preset("mini").captioner.partition(":")[2])
    for tokenizer in (BertTokenizer(vocab=str(tmp_path / "vocab.txt")), BertTokenizer.from_pretrained(embedded)):
        text = CaptionText(tokenizer)
        some = np.random.default_rng(0).integers(0, len(tokenizer) + 3, (500, 12)).tolist()
        for ids in [[], [0, 2], *some]:
            expected = tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=True)
            assert text(ids) == expected.strip()


# Drawing


def test_numbers_are_numpy_s() -> None:
    seeds = [
        0,
        1,
        2**32 - 1,
        2**32,
        2**63,
        2**64 - 1,
        -1,
        2**70 + 3,
        *np.random.default_rng(0).integers(2**63, size=99),
    ]
    expected = [np.random.Generator(np.random.PCG64(int(seed) % 2**64)).random(16) for seed in seeds]
    assert np.array_equal(seeded_numbers([int(seed) for seed in seeds], 16), expected)
    assert np.array_equal(seeded_numbers(seeds[:5], 16), expected[:5])
    assert seeded_numbers([], 3).shape == (0, 3)


def whole(logits: torch.Tensor, numbers: torch.Tensor, top_k: int, temperature: float) -> list[int]:
    """Sampling by the definition, over the whole vocabulary in NumPy."""
    found = []
    for row, number in zip(logits.double().numpy(), numbers[:, 0].tolist(), strict=True):
        if number < 0:
            found.append(int(row.argmax()))
            continue
        least = np.sort(row)[-top_k]
        shares = np.where(row >= least, np.exp((row - row.max()) / temperature), 0)
        below = shares.cumsum()
        found.append(int((below > number * below[-1]).argmax()))
    return found


@pytest.mark.parametrize("vocabulary", [60, 5000])
@pytest.mark.parametrize("levels", [None, 40, 3])
def test_tokens_are_drawn_by_the_definition_ties_included(vocabulary: int, levels: int | None) -> None:
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(300, vocabulary, generator=generator)
    if levels is not None:  # many equal logits; with few levels more than there are candidates
        logits = (logits * levels / 6).round() * 6 / levels
    numbers = numbers_of([None if row % 7 == 0 else row for row in range(300)], 1)
    for top_k, temperature in ((50, 1.0), (7, 0.7), (1, 2.0)):
        assert draw(logits, numbers, top_k, temperature).tolist() == whole(logits, numbers, top_k, temperature)
