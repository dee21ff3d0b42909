"""Writers, models and servers that hold programs to their grammar, and those that cannot."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from grammar_kit import NEEDED, accepts, build_noise, grammar
from openai_kit import Serve, completion, failure, turn

from codevqa.batching.model_services import ModelServices
from codevqa.core.errors import CodeVQAError, ModelError, ProgramError, SetupError
from codevqa.core.settings import WriterSettings
from codevqa.eval.run.calls import CallStore
from codevqa.eval.run.recorded_models import RecordedLM
from codevqa.models.base import Completion, GenerationRequest, Message, Models
from codevqa.models.causal_lm import TransformersLM, grammar_hold
from codevqa.models.causal_lm.gpu.decoder import Schedule, SlotDecoder
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.grammar import Grammar
from codevqa.models.openai_lm import OpenAILM
from codevqa.primitives.visual import VISUAL
from codevqa.prompts import load as load_prompts
from codevqa.sandbox import Sandbox
from codevqa.writing import grammar as writing_grammar
from codevqa.writing.prompt_forms import STOP, extract_program
from codevqa.writing.writer import Writer

needs_package = pytest.mark.skipif(not grammar_hold.installed(), reason=NEEDED)
LIMIT = 80
SHORT = Grammar((("text", '" a" ("b" | "cd"){3}'),))
PROMPTS = [
    f"# Image 1: Is the {color} {thing} there?" for color in ("red", "blue", "big", "old") for thing in ("box", "dog")
]


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_noise(tmp_path_factory.mktemp("noise"), seed=4)


def loaded(folder: Path, **options: Any) -> TransformersLM:
    return TransformersLM.from_pretrained(folder, device="cpu", **options)


def programs(held: Grammar | None) -> list[GenerationRequest]:
    return [GenerationRequest(prompt, LIMIT, STOP, grammar=held) for prompt in PROMPTS]


# -- local models ------------------------------------------------------------------------------------------------------


def verdicts(completions: Sequence[Completion]) -> list[str]:
    """What the static check says of the program in each completion; empty where nothing."""

    async def main() -> list[str]:
        said = []
        async with Sandbox(VISUAL, workers=1) as box:
            for made in completions:
                try:
                    await box.check(extract_program(made.text, continued=True))
                    said.append("")
                except ProgramError as error:
                    said.append(f"{type(error).__name__}: {error}")
        return said

    return asyncio.run(main())


@needs_package
def test_noise_becomes_programs_that_pass_the_static_check(noise: Path) -> None:
    lm = loaded(noise)
    free = verdicts(lm.generate(programs(None)))
    assert all(free), "noise that passes the check shows nothing"
    assert any("ProgramSyntaxError" in said for said in free)
    whole = [made for made in lm.generate(programs(grammar())) if made.completion_tokens < LIMIT]
    said = verdicts(whole)
    assert said.count("") >= 3, "too few programs came to their end"
    # Which names there are, and of which type, no grammar knows.
    rest = [re.sub(r"line \d+: |Name '\w+' used when not defined|Object of type '\w+' has no attribute '\w+'", "", one)
            for one in said]  # fmt: skip
    assert {one.strip(" ;") for one in rest} <= {"", "ProgramTypeError:"}


@needs_package
def test_every_decoder_writes_the_same_beside_requests_without_a_grammar(noise: Path) -> None:
    held = grammar()
    mixed = [
        *programs(held)[:5],
        *programs(held)[:2],
        *programs(None)[:3],
        GenerationRequest(PROMPTS[0], 9, grammar=SHORT),
    ]
    packed, plain, slots = loaded(noise), loaded(noise, loop=False), loaded(noise)
    schedule = Schedule(steps=3, rounds_in_flight=1, prefill_tokens=64, least_saving=4, length_multiple=16)
    slots._loop = SlotDecoder(slots.model, pad=0, max_batch=8, prefix_bytes=0, stats=slots.stats, schedule=schedule)
    expected = plain.generate(mixed)
    assert plain.stats.generate_calls > 0 and plain.stats.steps == 0
    assert packed.generate(mixed) == expected
    assert packed.stats.generate_calls == 0 and packed.stats.confirmed_tokens > 0, "guesses were not tried"
    assert slots.generate(mixed) == expected
    assert slots.stats.generate_calls > 0 and slots.stats.steps > 0, "one decoder got them all"
    for request, made in zip(mixed, expected, strict=True):
        if request.grammar is held:
            assert accepts(held.lark, made.text, whole=False)
    assert not all(accepts(held.lark, made.text, whole=False) for made in plain.generate(programs(None)))
    # It ends where its grammar does, not at the limit.
    assert accepts(SHORT.lark, expected[-1].text)


@needs_package
def test_a_grammar_that_cannot_be_used_is_a_typed_error(noise: Path) -> None:
    lm = loaded(noise)
    with pytest.raises(CodeVQAError, match="grammar cannot be used"):
        lm.generate([GenerationRequest("a", 5, grammar=Grammar((("text", '"a" nowhere'),)))])
    endless = loaded(noise)
    endless._ends.clear()
    with pytest.raises(SetupError, match="no end token"):
        endless.generate([GenerationRequest("a", 5, grammar=SHORT)])


def test_a_missing_package_names_the_extra(noise: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_hold, "find_spec", lambda name: None)
    lm = loaded(noise)
    assert not lm.constrains
    with pytest.raises(SetupError, match=r"llguidance is absent\. Install codevqa\[constrained\]"):
        lm.generate([GenerationRequest("a", 5, grammar=SHORT)])
    assert len(lm.generate([GenerationRequest("a", 5)])) == 1


# -- the writer --------------------------------------------------------------------------------------------------------


class HeldLM(ScriptedLM):
    constrains = True


def writer(lm: ScriptedLM, **settings: Any) -> Writer:
    return Writer(
        lm, load_prompts("gqa"), None, WriterSettings(**{"selection": "fixed", "form": "completion", **settings})
    )


def test_the_writer_sends_a_grammar_where_it_is_asked_to_and_the_model_takes_it() -> None:
    for constrained in (True, "auto"):
        for form in ("completion", "chat"):
            request, _ = writer(HeldLM(""), constrained=constrained, form=form).request("Red?", "image")
            assert request.grammar == grammar(chat=form == "chat")
    assert writer(HeldLM("")).request("Red?", "image")[0].grammar is None


def test_a_model_that_takes_none_fails_or_goes_on_as_the_setting_says(caplog: pytest.LogCaptureFixture) -> None:
    writing_grammar._say_once.cache_clear()
    with pytest.raises(SetupError, match=r"cannot be held to a grammar.*codevqa\[constrained\]"):
        writer(ScriptedLM(""), constrained=True).request("Red?", "image")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert writer(ScriptedLM(""), constrained="auto").request("Red?", "image")[0].grammar is None
    assert [record.message for record in caplog.records] == [
        "scripted cannot be held to a grammar: it writes programs without."
    ]


def test_calls_that_differ_in_their_grammar_are_different_calls(tmp_path: Path) -> None:
    free, held = GenerationRequest("a", 5), GenerationRequest("a", 5, grammar=SHORT)

    async def main() -> list[Completion]:
        services = ModelServices(Models(lm, FakeMatcher(6), FakeCaptioner()), lm, max_batch=8, max_wait=0.05)
        made = await asyncio.gather(services.write(free), services.write(held), services.write(held))
        services.close()
        return list(made)

    lm = HeldLM(lambda request: "free" if request.grammar is None else "held")
    assert [made.text for made in asyncio.run(main())] == ["free", "held", "held"]
    about = {"name": "m", "model": "m", "settings": {}, "constrains": True}
    store = CallStore(tmp_path / "calls.sqlite")
    recorded = RecordedLM(store, about, lm)
    assert recorded.constrains and not RecordedLM(store, {**about, "constrains": False}).constrains
    assert [made.text for made in recorded.generate([free, held])] == ["free", "held"]
    assert [made.text for made in RecordedLM(store, about).generate([held, free])] == ["held", "free"]
    store.close()


# -- servers -----------------------------------------------------------------------------------------------------------


def test_servers_are_sent_the_grammar_in_their_own_field(serve: Serve) -> None:
    server = serve(lambda path, body, n: turn("x") if "chat" in path else completion("x"))
    ask = GenerationRequest("Say", 5, grammar=SHORT)
    OpenAILM("m", base_url=server.url, grammar="vllm").generate([ask])
    OpenAILM("m", base_url=server.url, grammar="llama.cpp").generate([ask])
    OpenAILM("m", base_url=server.url, grammar="llama.cpp").generate([GenerationRequest("Say", 5)])
    turns = (Message("user", "Hi"),)
    OpenAILM("m", base_url=server.url, grammar="vllm").generate([GenerationRequest(turns, 5, grammar=SHORT)])
    bodies = [body for _, body, _ in server.seen]
    assert bodies[0]["structured_outputs"] == bodies[3]["structured_outputs"] == {"grammar": SHORT.gbnf}
    assert bodies[1]["grammar"] == SHORT.gbnf == 'root ::= " a" ("b" | "cd"){3}\n'
    assert "grammar" not in bodies[0] and "structured_outputs" not in bodies[1]
    assert bodies[2] == {"model": "m", "prompt": "Say", "max_tokens": 5, "temperature": 0}


def test_a_server_of_which_nothing_is_said_is_sent_none(serve: Serve) -> None:
    server = serve(lambda path, body, n: completion("x"))
    lm = OpenAILM("m", base_url=server.url)
    assert not lm.constrains and OpenAILM("m", base_url=server.url, grammar="vllm").constrains
    with pytest.raises(SetupError, match=r'cannot be held to a grammar.*OpenAILM\(grammar="vllm"\)'):
        lm.generate([GenerationRequest("Say", 5, grammar=SHORT)])
    assert server.seen == []
    with pytest.raises(SetupError, match="Unknown grammar"):
        OpenAILM("m", base_url=server.url, grammar="lark")  # type: ignore[arg-type]


def test_a_server_that_refuses_the_grammar_is_a_typed_error(serve: Serve) -> None:
    server = serve(
        lambda path, body, n: failure(400, "failed to parse grammar") if "grammar" in body else completion("x")
    )
    lm = OpenAILM("m", base_url=server.url, grammar="llama.cpp")
    with pytest.raises(ModelError, match=r"failed to parse grammar.*constrained=False"):
        lm.generate([GenerationRequest("Say", 5, grammar=SHORT)])
    assert len(server.seen) == 1
    assert lm.generate([GenerationRequest("Say", 5)])[0].text == "x"
