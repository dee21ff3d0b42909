"""Language models of this process write what transformers writes to each prompt alone, however they are decoded."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from lm_kit import CONTEXT, HEAD, alone, build, ending, gpt2, llama, mixed, reference
from tiny_lm import build_tiny_lm, build_tokenizer

from codevqa.core.errors import ModelError, SetupError
from codevqa.models.causal_lm import TransformersLM
from codevqa.models.causal_lm.cpu import decoder as packed
from codevqa.models.causal_lm.cpu.decoder import Drafter
from codevqa.models.causal_lm.gpu import slots
from codevqa.models.causal_lm.gpu.decoder import Schedule
from codevqa.models.causal_lm.network import LlamaNetwork
from codevqa.models.protocols import GenerationRequest, Message

WAYS = ("packed", "slots", "kernels", "generate")
LONG = Schedule(steps=8, rounds_in_flight=2, prefill_tokens=10**6, length_multiple=64)
EACH = Schedule(steps=1, rounds_in_flight=0, prefill_tokens=256, length_multiple=1)
CAR = "What color is the car?"


@pytest.fixture(params=WAYS)
def lm(request: pytest.FixtureRequest) -> TransformersLM:
    return build(llama, request.param)


def asked(*prompts: str, most: int = 24, **options: Any) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, most, **options) for prompt in prompts]


@pytest.mark.parametrize("count", [1, 3, 16])
@pytest.mark.parametrize("way", WAYS)
def test_many_prompts_at_once_read_as_each_alone(way: str, count: int) -> None:
    expected, lm = alone(llama), build(llama, way, max_batch=count)
    assert lm.generate(mixed()) == expected
    assert lm.generate(mixed()[::-1]) == expected[::-1], "what is left of the last call is in the way"
    assert (lm.stats.generate_calls == 0) == (way != "generate") and lm.generate([]) == []


@pytest.mark.parametrize("cores", [1, 2])
def test_short_passes_little_memory_and_few_cores_write_the_same(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(packed, "_PASS", 9)
    try:
        torch.set_num_threads(cores)
        lm, draw = build(llama, prefix_cache_bytes=30_000, max_batch=4), random.Random(1)
        expected = dict(zip(map(repr, mixed()), alone(llama), strict=True))
        for _ in range(5):  # beginnings are forgotten all the time
            some = draw.choices(mixed(), k=6)
            assert lm.generate(some) == [expected[repr(request)] for request in some]
        assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)


def test_a_stop_string_in_the_prompt_does_not_end_it(lm: TransformersLM) -> None:
    prompt = "answer\n# Image"
    (free,) = lm.generate(asked(prompt, most=12))
    assert "# Image" not in free.text
    assert lm.generate(asked(prompt, most=12, stop=("# Image",))) == [free]


@pytest.mark.parametrize("way", WAYS)
def test_an_end_token_ends_the_text(way: str) -> None:
    tokens, text = reference(ending, CAR, 12)
    assert 3 < len(tokens) < 12
    lm = build(ending, way)
    ended, other = lm.generate(asked(CAR, "yes", most=12))
    assert (ended.completion_tokens, ended.text) == (len(tokens), text[: len(ended.text)]) and len(ended.text) < len(
        text
    )
    assert [other] == lm.generate(asked("yes", most=12))


@pytest.mark.parametrize(("way", "make"), [("packed", llama), ("slots", llama), ("generate", gpt2)])
def test_a_full_context_ends_a_text(way: str, make: Callable[[], Any]) -> None:
    # GPT-2 has no position past its context: to step there would be an error.
    lm, plain = build(make, way, schedule=LONG), build(make, "generate")
    longest = "<s>"
    while len(lm.tokenizer.encode([longest])[0]) < CONTEXT - 7:
        longest += " x="
    requests = [GenerationRequest(longest, 100), GenerationRequest("red ball", 40), GenerationRequest(longest[:-9], 90)]
    assert lm.generate(requests) == [plain.generate([request])[0] for request in requests]
    assert lm.generate(requests)[0].completion_tokens <= 7
    with pytest.raises(ModelError, match=rf"prompt is \d+ tokens long; .* context of {CONTEXT}"):
        lm.generate([GenerationRequest(longest * 2, 4)])


def test_tokenizers_that_drop_a_leading_space(tmp_path: Any) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"\u2581answer": 0, "\u2581=": 1, "\u2581query": 2, "<unk>": 3}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    build_tiny_lm(tmp_path)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    lm = TransformersLM.from_pretrained(tmp_path, device="cpu")
    assert lm.tokenizer.decode([1, 2]) == "= query"
    assert lm.completion_text([0], [1, 2]) == " = query"


def test_a_beginning_that_is_kept_changes_no_text(lm: TransformersLM) -> None:
    tails = ["# Image 2: Is it?", "", "  x", "# Image 2: What color is the car?\nimg = open_image(", "=" * 30]
    plain = lm.generate(asked(*(HEAD + tail for tail in tails), most=20))
    requests = asked(*(HEAD + tail for tail in tails), most=20, shared=len(HEAD))
    assert lm.generate(requests) == plain
    before = lm.stats.reused_tokens
    assert lm.generate(requests) == plain, "the kept prefix was changed by the first use"
    assert lm.stats.reused_tokens > before
    assert [lm.generate([request])[0] for request in requests] == plain
    # Its last token may join with what follows; too short or too long marks count as none.
    joined = HEAD + "answer = "
    for shared in (3, len(HEAD) + 3, 10**6):
        assert lm.generate(asked(joined, shared=shared)) == lm.generate(asked(joined))


def test_what_has_been_written_is_guessed_and_wrong_guesses_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, steps = build(llama), []
    for _ in range(2):
        before = lm.stats.steps
        assert lm.generate(mixed()) == alone(llama)
        steps.append(lm.stats.steps - before)
    assert steps[1] < steps[0] / 2, "the same again takes as many passes"
    draw = random.Random(0)
    monkeypatch.setattr(Drafter, "guess", lambda _, text, count: [draw.randrange(3, 400) for _ in range(count)])
    wrong = build(llama)
    assert wrong.generate(mixed()) == alone(llama)
    assert wrong.stats.guessed_tokens > 5 * wrong.stats.confirmed_tokens


class Recorder:
    """In the place of CUDA graphs: warms up as they do, and runs the function where they are replayed."""

    recordings = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, function: Callable[[], None], undo: Callable[[], None]) -> tuple[Callable[[], None], None]:
        Recorder.recordings += 1
        for _ in range(2):
            function()
            undo()
        return function, None


@pytest.mark.parametrize("way", ["slots", "kernels"])
@pytest.mark.parametrize("schedule", [EACH, LONG], ids=["each", "long"])
def test_recording_a_pass_makes_no_token(schedule: Schedule, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "Recorder", Recorder)
    monkeypatch.setattr(slots, "graphs_enabled", lambda device: True)
    monkeypatch.setattr(Recorder, "recordings", 0)
    lm = build(llama, way, schedule=schedule, max_batch=3)
    assert lm.generate(mixed()) == alone(llama)
    shapes = Recorder.recordings
    assert 0 < shapes < lm.stats.steps, "a pass is recorded each time"
    assert lm.generate(mixed()) == alone(llama)
    assert Recorder.recordings == shapes, "recordings are not kept from call to call"


def test_unrecordable_steps_are_launched(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    refused = Mock(side_effect=RuntimeError("CUDA error: operation not permitted when stream is capturing"))
    monkeypatch.setattr(slots, "Recorder", Recorder)
    monkeypatch.setattr(slots, "graphs_enabled", lambda device: True)
    monkeypatch.setattr(Recorder, "__call__", refused)
    lm = build(llama, "slots")
    for _ in range(2):
        assert lm.generate(mixed()) == alone(llama)
    assert len(caplog.messages) == 1


def test_generate_halves_its_batches_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, sizes, most = build(llama, "generate", max_batch=8), list[int](), [2]
    generate = lm.model.generate

    def scarce(input_ids: torch.Tensor, **arguments: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > most[0]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return generate(input_ids=input_ids, **arguments)

    monkeypatch.setattr(lm.model, "generate", scarce)
    assert lm.generate(mixed()) == alone(llama)
    assert max(sizes) > 2
    most[0] = 0
    with pytest.raises(ModelError, match="ran out of memory"):
        lm.generate(asked("red", "red", most=4))


def test_memory_that_runs_out_on_the_way_costs_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    run, calls = slots.Step.run, [0]

    def fails_once(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 40:
            raise torch.OutOfMemoryError("out of memory")
        return run(*arguments)

    monkeypatch.setattr(slots.Step, "run", fails_once)
    streams = [list[str]() for _ in mixed()]
    requests = [replace(request, on_text=heard.append) for request, heard in zip(mixed(), streams, strict=True)]
    completions = build(llama, "slots", max_batch=4, schedule=EACH).generate(requests)
    assert completions == alone(llama) and calls[0] > 40
    assert ["".join(heard[-1:]) for heard in streams] == [completion.text for completion in completions], (
        "text that was told is taken back"
    )


def test_a_failure_in_one_worker_is_the_failure_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    before, forward, failed = torch.get_num_threads(), LlamaNetwork.forward, list[int]()

    def fails_once(*arguments: Any) -> Any:
        if not failed:
            failed.append(1)
            raise RuntimeError("broken")
        return forward(*arguments)

    try:
        torch.set_num_threads(2)
        lm = build(llama)
        monkeypatch.setattr(LlamaNetwork, "forward", fails_once)
        with pytest.raises(RuntimeError, match="broken"):
            lm.generate(mixed())
        assert lm.generate(mixed()) == alone(llama), "the next call begins afresh"
    finally:
        torch.set_num_threads(before)


TURNS = "{% for turn in messages %}<|{{ turn['role'] }}|>{{ turn['content'] }}\n{% endfor %}"
REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
DROPS = "{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}{% endif %}"
SHORT, COLOR = Message("system", "Be short."), Message("user", "What color?")


def chatting(folder: Any, template: str | None) -> TransformersLM:
    return TransformersLM.from_pretrained(build_tiny_lm(folder, chat_template=template), device="cpu")


@pytest.mark.parametrize("loop", [True, False])
def test_a_chat_goes_through_the_template(tmp_path: Any, loop: bool) -> None:
    lm = TransformersLM.from_pretrained(build_tiny_lm(tmp_path), device="cpu", loop=loop)
    turns = [{"role": message.role, "content": message.content} for message in (SHORT, COLOR)]
    theirs = build_tokenizer().apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    (completion,) = lm.generate([GenerationRequest((SHORT, COLOR), 16)])
    assert lm.chat and completion.prompt_tokens == len(lm.tokenizer.encode([theirs], special=False)[0])


@pytest.mark.parametrize("template", [REFUSES + TURNS, DROPS + TURNS], ids=["refused", "left out"])
def test_a_system_turn_goes_into_the_first_of_the_user_where_a_template_has_none(tmp_path: Any, template: str) -> None:
    plain, lm = chatting(tmp_path / "plain", TURNS), chatting(tmp_path / "own", template)
    rest = (Message("assistant", "red"), Message("user", "And now?"))
    merged = plain.generate([GenerationRequest((Message("user", "Be short.\n\nWhat color?"), *rest), 16)])
    assert merged != plain.generate([GenerationRequest((COLOR, *rest), 16)])
    for shared in (0, 1, 3):
        assert lm.generate([GenerationRequest((SHORT, COLOR, *rest), 16, shared=shared)]) == merged


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% for %}", "{{ messages[0]['content'] + 3 }}"])
def test_a_template_that_refuses_is_a_setup_error(tmp_path: Any, template: str) -> None:
    with pytest.raises(SetupError, match=r"refuses this prompt: .* Mend chat_template\.jinja"):
        chatting(tmp_path, template).generate([GenerationRequest((SHORT, COLOR), 4)])


def test_requests_that_cannot_be_answered(tmp_path: Any, lm: TransformersLM) -> None:
    with pytest.raises(ModelError, match="max_tokens is 0"):
        lm.generate([GenerationRequest("x", 0)])
    bare = TransformersLM.from_pretrained(build_tiny_lm(tmp_path, bos=False, chat_template=None), device="cpu")
    with pytest.raises(ModelError, match="prompt is empty"):
        bare.generate([GenerationRequest("", 4)])
    with pytest.raises(SetupError, match="no chat template"):
        bare.generate([GenerationRequest((COLOR,), 4)])


def test_a_tokenizer_of_a_larger_model_is_a_setup_error(tmp_path: Any) -> None:
    build_tiny_lm(tmp_path, vocab_size=300)
    build_tokenizer().save_pretrained(tmp_path)
    lm = TransformersLM.from_pretrained(tmp_path, device="cpu")
    assert lm.generate([GenerationRequest("x", 4)])
    with pytest.raises(SetupError, match=r"makes token 3\d\d, and the model knows 300\. Put the tokenizer\.json"):
        lm.generate([GenerationRequest("Please answer the question", 4)])
