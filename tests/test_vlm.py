"""Vision-language models: answers are the network's own, whatever else is asked, and a picture is encoded once."""

import logging
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import lose_a_weight, noise_picture
from tiny_lm import TEMPLATE, build_tiny_lm, write_idefics3, write_qwen3_vl

from codevqa.core.errors import ModelError, SetupError
from codevqa.models.protocols import LookRequest, Sight
from codevqa.models.vlm import TransformersEyes

FIRST, WIDE, TALL = noise_picture(0), noise_picture(1, 80, 30), noise_picture(2, 30, 70)
REQUESTS = [
    LookRequest((FIRST,), "What color is the car?", 8),
    LookRequest((WIDE,), "Is a <image> on the sofa </s>?", 8),
    LookRequest((FIRST,), "What is on the sofa, in the box and under the table?", 3),
    LookRequest((FIRST, WIDE), "Are they alike?", 12),
    LookRequest((WIDE, FIRST), "Is it red?", 4, ("yes", "no")),
    LookRequest((TALL,), "What is it?", 4, ("a dog", "a cat", "a", "the box")),
]


@pytest.fixture(
    scope="module",
    params=[
        write_idefics3,
        pytest.param(
            write_qwen3_vl,
            marks=pytest.mark.skipif(find_spec("torchvision") is None, reason="its processor needs torchvision"),
        ),
    ],
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    written: str = request.param(tmp_path_factory.mktemp("vlm"))
    return written


@pytest.fixture
def eyes(folder: str) -> TransformersEyes:
    return TransformersEyes.from_pretrained(folder, device="cpu")


def towers(eyes: TransformersEyes) -> list[int]:
    """Returns a list that receives an entry whenever the vision tower runs."""
    calls: list[int] = []
    inner = eyes._network.model
    tower = next(
        module for name in ("vision_model", "visual", "vision_tower") if (module := getattr(inner, name, None))
    )
    tower.register_forward_hook(lambda *_: calls.append(1))
    return calls


def same(actual: Sequence[Sight], expected: Sequence[Sight]) -> None:
    for sight, other in zip(actual, expected, strict=True):
        assert (sight.text, sight.prompt_tokens, sight.completion_tokens) == (
            other.text,
            other.prompt_tokens,
            other.completion_tokens,
        )
        assert [choice for choice, _ in sight.chances] == [choice for choice, _ in other.chances]
        np.testing.assert_allclose([p for _, p in sight.chances], [p for _, p in other.chances], atol=1e-4)


def prompt(eyes: TransformersEyes, request: LookRequest) -> Any:
    """Returns what transformers makes of a request."""
    pictures = [{"type": "image", "image": picture.pixels} for picture in request.pictures]
    turn = {"role": "user", "content": [*pictures, {"type": "text", "text": request.text}]}
    return eyes._processor.apply_chat_template(
        [turn], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )


def test_an_answer_is_what_generate_writes_of_the_pictures_and_the_text(eyes: TransformersEyes) -> None:
    for request in (REQUESTS[0], REQUESTS[3]):
        inputs = prompt(eyes, request)
        tokens = eyes._network.generate(**inputs, max_new_tokens=request.max_tokens)[0, inputs["input_ids"].shape[1] :]
        (sight,) = eyes.look([request])
        assert sight.text == eyes._tokenizer.decode(tokens, skip_special_tokens=True).strip() != ""
        assert sight.prompt_tokens == inputs["input_ids"].shape[1] and sight.completion_tokens == len(tokens)


def test_an_answer_depends_on_its_request_alone(eyes: TransformersEyes) -> None:
    together = eyes.look(REQUESTS)
    same(together, [eyes.look([request])[0] for request in REQUESTS])
    same(together, eyes.look(REQUESTS[::-1])[::-1])
    assert together[0].text != eyes.look([LookRequest((TALL,), REQUESTS[0].text, 8)])[0].text


def test_features_that_are_kept_give_what_pictures_give(eyes: TransformersEyes, folder: str) -> None:
    calls = towers(eyes)
    first, again = eyes.look(REQUESTS), eyes.look(REQUESTS)
    assert len(calls) == 3 == len(eyes._prompts.kept)  # pictures, however many questions
    same(again, first)
    plain = TransformersEyes.from_pretrained(folder, device="cpu")
    plain._prompts._apart = False  # it encodes pictures with each request
    same(plain.look(REQUESTS), first)
    kept = eyes._prompts.kept
    little = TransformersEyes.from_pretrained(folder, device="cpu", cache_bytes=int(kept.getsizeof(kept[WIDE.key])))
    same(little.look(REQUESTS), first)
    assert 0 < little._prompts.kept.currsize <= little._prompts.kept.maxsize < kept.currsize


def test_chances_are_the_networks_own(eyes: TransformersEyes) -> None:
    (sight,) = eyes.look(REQUESTS[5:])
    inputs = prompt(eyes, REQUESTS[5])
    written = [eyes._tokenizer(f" {choice}</s>", add_special_tokens=False).input_ids for choice in REQUESTS[5].choices]
    scores = []
    for own in written:
        whole = dict(inputs) | {"input_ids": torch.cat([inputs["input_ids"], torch.tensor([own])], 1)}
        whole["attention_mask"] = torch.ones_like(whole["input_ids"])
        if "mm_token_type_ids" in whole:
            whole["mm_token_type_ids"] = torch.nn.functional.pad(whole["mm_token_type_ids"], (0, len(own)))
        with torch.inference_mode():
            logits = eyes._network(**whole).logits[0, -len(own) - 1 : -1].log_softmax(-1)
        scores.append(logits[range(len(own)), own].sum())
    expected = torch.stack(scores).softmax(0)
    np.testing.assert_allclose([chance for _, chance in sight.chances], expected, atol=1e-4)
    assert sight.text == REQUESTS[5].choices[int(expected.argmax())]
    for reply in eyes.look(REQUESTS[4:]):
        assert sum(chance for _, chance in reply.chances) == pytest.approx(1)
        assert reply.text == max(reply.chances, key=lambda pair: pair[1])[0]


@pytest.mark.parametrize("how", ["refuses", "fewer", "unlike"])
def test_inseparable_features_are_not_kept(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    write_idefics3(tmp_path)
    expected = TransformersEyes.from_pretrained(str(tmp_path), device="cpu").look(REQUESTS)
    eyes = TransformersEyes.from_pretrained(str(tmp_path), device="cpu")
    network, encoder = eyes._network, eyes._prompts._encoder
    if how == "refuses":  # as architectures do that have no mm_encoder_outputs
        network.forward = lambda input_ids=None, pixel_values=None, **more: type(network).forward(
            network, input_ids, pixel_values=pixel_values, **more
        )
        with caplog.at_level(logging.WARNING):
            eyes = TransformersEyes(network, eyes._processor, name="x")
        assert "encodes a picture again" in caplog.text
        network.forward = type(network).forward.__get__(network)
    elif how == "unlike":  # as LLaVA-OneVision shows several pictures
        eyes._prompts._alike = False
        calls = towers(eyes)
        same(eyes.look(REQUESTS[3:4] * 2), expected[3:4] * 2)
        assert len(calls) == 2 + 2  # each picture alone, then both with each request
    else:  # a picture alone has more features than it has among several

        @wraps(encoder)
        def halved(**arguments: torch.Tensor) -> Any:
            output = encoder(**arguments)
            output.pooler_output = [features[::2] for features in output.pooler_output]
            return output

        eyes._prompts._encoder = halved
    same(eyes.look(REQUESTS), expected)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lose_a_weight, "is not complete: 1 weights are missing"),
        (lambda folder: (folder / "processor_config.json").unlink(), "processor"),
        (lambda folder: (folder / "chat_template.jinja").unlink(), "has no chat template"),
        (build_tiny_lm, "is a 'llama' network"),
        (lambda folder: (folder / "config.json").unlink(), "Cannot load the vision-language model"),
    ],
)
def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path, spoil: Callable[[Path], object], says: str) -> None:
    write_idefics3(tmp_path)
    spoil(tmp_path)
    with pytest.raises(SetupError, match=says):
        TransformersEyes.from_pretrained(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "request_", "says"),
    [
        ({"context": 60}, REQUESTS[3], r"no room for \d+ tokens of a prompt with 2 pictures"),
        ({"template": TEMPLATE.replace("PLACE", "") + "<image>"}, REQUESTS[3], "cannot be shown 2 pictures"),
        ({}, LookRequest((FIRST,), "Is it?", 4, ("yes", "")), "A choice is empty"),
    ],
)
def test_a_bad_request_is_one_line(tmp_path: Path, settings: dict[str, Any], request_: LookRequest, says: str) -> None:
    eyes = TransformersEyes.from_pretrained(write_idefics3(tmp_path, **settings), device="cpu")
    with pytest.raises(ModelError, match=says):
        eyes.look([REQUESTS[0], request_])
    assert eyes.look(REQUESTS[:1])[0].text or settings


def test_scarce_memory_halves_the_batch_and_frees_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eyes = TransformersEyes.from_pretrained(write_idefics3(tmp_path), device="cpu")
    expected = eyes.look(REQUESTS)
    sizes: list[int] = []
    calls = towers(eyes)
    generate = eyes._network.generate

    def scarce(**arguments: Any) -> Any:
        sizes.append(len(arguments["input_ids"]))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError("no memory")
        return generate(**arguments)

    monkeypatch.setattr(eyes._network, "generate", scarce)
    same(eyes.look(REQUESTS[:4]), expected[:4])
    assert sizes[0] == 4 and max(sizes[1:]) == 2
    assert len(calls) == 2  # pictures, again
