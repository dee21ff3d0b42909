"""Several programs for one question: random worlds, and the choice among them."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from engine_kit import RED, engine
from sandbox_kit import IMAGES

from codevqa import Answer, QuerySettings, Settings, WriterSettings
from codevqa.core.events import Answered, Event, Rejected
from codevqa.engine.confidence import DONT_KNOW
from codevqa.models.fakes import ScriptedLM
from codevqa.primitives import Image
from codevqa.primitives.detection import DETECTION
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox import Limits, Sandbox
from codevqa.writing.worlds import Behaviour, behaviours


def lived(*programs: str, images: Sequence[Image] = IMAGES, seed: int = 0) -> list[Behaviour]:
    async def run() -> list[Behaviour]:
        limits = Limits(seconds=1)
        async with Sandbox(VISUAL.extend(DETECTION), limits, workers=2) as sandbox:
            return await behaviours(programs, sandbox, images, str, seed)

    return asyncio.run(run())


def test_worlds_are_the_same_for_equal_wordings_and_differ_by_picture_and_seed() -> None:
    asked = ("Is there a red cup?", "Are there any red cups?", "do you see the red cup?", "Is there a blue cup?")
    programs = [f"answer = query(images[0], {question!r})" for question in asked]
    counted = "answer = 'yes' if int(query(images[0], 'How many red cups are there?')) > 0 else 'no'"
    boxed = "answer = 'yes' if find_object(images[0], 'red cup') else 'no'"
    elsewhere = programs[0].replace("[0]", "[1]")
    found = lived(*programs, counted, boxed, elsewhere, programs[0])
    assert len(set(found)) == 3 and len({*found[:3], *found[4:6], found[7]}) == 1
    assert {*found[0]} == {"yes", "no"}
    assert found == lived(*programs, counted, boxed, elsewhere, programs[0])
    assert found[0] != lived(programs[0], seed=1)[0]


def test_a_world_answers_in_the_kind_that_is_asked_for() -> None:
    color, every, number, side, best, place = lived(
        'answer = query(images[0], "What color is the cup?") == "purple"',
        'answer = all([query(image, "How many cups are there?") in ("2", "two") for image in images])',
        'answer = query(images[0], "How many cups are there?")',
        'answer = query(images[0], "Is the cup red or blue?")',
        'answer = find_matching_image(images, "a cup").index == find_matching_image(images[:2], "cup").index',
        'answer = [0 < one < 24 for one in get_pos(images[0], "cup")]',
    )
    assert {*color} == {*every} == {*best} == {"true", "false"}, "what programs compare with can hold"
    assert {*number} <= {*"0123"} and {*side} == {"red", "blue"}
    assert {*place} == {"[true, true]"}


OPENED = 'open_images("ImageSet1.jpg")'


def test_each_world_begins_afresh_and_a_failure_is_one_world_s() -> None:
    begun = time.monotonic()
    yes, left, kept, max_, keyed, wrong, endless, unread = lived(
        'answer = query(images[0], "Is there a cup?")',
        'if query(images[0], "Is there a cup?") == "yes":\n    answer = "yes"',
        f"images.pop()\n{OPENED}.pop()\nanswer = len(images) + len({OPENED})",
        "max = max(1, 2)\nquery = str(max)\nanswer = query",
        'seen = {image: query(image, "Is there a cup?") for image in images}\nanswer = seen[images[0]]',
        'answer = query("cup")',
        "while True: pass",
        "answer = (",
    )
    assert time.monotonic() < begun + 10, "one that never ends is run once"
    assert left == tuple("yes" if one == "yes" else None for one in yes)
    assert keyed == yes and {*kept} == {"5"} and {*max_} == {"2"}
    assert {*wrong, *endless, *unread} == {None}


CUP = 'answer = query(img, "Is there a cup?")'
ALIKE = "answer = 'yes' if int(query(img, 'How many cups are there?')) else 'no'"
OTHER = 'answer = query(img, "Is it red?")'
BIG = 'answer = query(img, "Is it big?")'
NO = 'answer = "no"'


def asked(
    programs: Sequence[str], k: int = 1, *, repairs: int = 0, calls: int = 200, told: Any = (), **numbers: Any
) -> tuple[Answer, ScriptedLM]:
    settings = Settings(
        writer=WriterSettings(selection="random", repairs=repairs, programs=k),
        query=QuerySettings(captions=1, patches=5),
        limits=Limits(calls=calls),
        **numbers,
    )
    model = ScriptedLM(programs)
    with engine(model, answers={"Is it red?": "no", "Is it big?": "no"}, settings=settings) as vqa:
        events = list(vqa.watch(RED, "Is there a cup?"))
    told += (*events,)
    assert isinstance(events[-1], Answered)
    return events[-1].answer, model


def test_the_program_that_does_what_most_do_is_run() -> None:
    answer, model = asked([OTHER, CUP, NO, "answer = (", ALIKE], 5)
    drafts = answer.trace.drafts
    assert answer.program is not None and answer.program.source == CUP and answer.text == "yes"
    assert [draft.chosen for draft in drafts] == [False, True, False, False, False]
    assert [draft.cluster for draft in drafts] == [1, 2, 3, 4, 2]
    assert [draft.fault for draft in drafts] == [None, None, "blind", "fails", None]
    assert drafts[1].agreement == drafts[4].agreement > drafts[0].agreement > drafts[3].agreement == 0
    assert len({draft.examples for draft in drafts}) == 5 and answer.program.examples == drafts[1].examples
    assert model.batches == [3, 2], "drafts share batches"
    assert Answer.from_json(answer.to_json()) == answer


def test_no_more_are_written_where_the_first_three_agree() -> None:
    answer, model = asked([CUP, ALIKE, CUP], 16)
    assert model.batches == [3] and [draft.agreement for draft in answer.trace.drafts] == [1, 1, 1]
    assert answer.program is not None and answer.program.source == CUP


def test_the_program_that_is_chosen_is_repaired_after_its_own_examples() -> None:
    unknown = f"{CUP} if img else qury(img)"
    answer, model = asked([NO, unknown, unknown, CUP], 3, repairs=1)
    assert answer.program is not None and answer.program.source == CUP and answer.text == "yes"
    assert [error.type for _, error in answer.trace.attempts] == ["ProgramTypeError"]
    assert str(model.requests[3].prompt).startswith(str(model.requests[1].prompt))


def test_the_answer_that_most_programs_give_is_taken_with_the_evidence_of_one_that_gave_it() -> None:
    answer, _ = asked([CUP, OTHER, BIG, CUP, NO], agree=5)
    drafts = answer.trace.drafts
    assert [draft.answer for draft in drafts] == ["yes", "no", "no", "yes", "no"]
    assert answer.text == "no" and answer.program is not None and answer.program.source in (OTHER, BIG)
    assert [draft.source for draft in drafts if draft.chosen] == [answer.program.source]
    assert [call.name for call in answer.trace.calls] == ["query"] and answer.trace.calls[0].value == "no"
    assert answer.confidence is not None and not answer.abstained and not answer.fallback
    surer, _ = asked([CUP, CUP, CUP], agree=5)
    assert surer.confidence is not None and 0 < answer.confidence < surer.confidence < 1
    assert Answer.from_json(answer.to_json()) == answer


def test_no_more_programs_run_once_their_calls_are_used_up() -> None:
    answer, _ = asked([CUP, OTHER, BIG, CUP, NO], agree=5, calls=1)
    assert [draft.answer for draft in answer.trace.drafts] == ["yes", None, None, "yes", None]
    assert answer.text == "yes"


def test_another_program_answers_for_one_that_fails_and_the_baseline_where_all_do() -> None:
    fails = f'{CUP}\nif answer == "yes":\n    answer = int(answer)'
    told: list[Event] = []
    answer, _ = asked([fails, fails, OTHER], agree=3, told=told)
    assert answer.text == "no" and not answer.fallback
    assert [draft.answer for draft in answer.trace.drafts] == [None, None, "no"]
    assert [event.next for event in told if isinstance(event, Rejected)] == ["others"]
    answer, _ = asked([fails, fails, f"{BIG}\nanswer = int(answer)"], agree=3)
    assert answer.fallback and answer.error is not None and answer.confidence is None
    assert answer.trace.attempts == ((answer.program, answer.error),)
    assert [call.value for call in answer.trace.calls] == ["yes"], "of the program that is shown"
    assert answer.text and {draft.answer for draft in answer.trace.drafts} == {None}


def test_an_answer_that_is_not_sure_enough_is_not_given() -> None:
    answer, _ = asked([CUP, OTHER, BIG, CUP, NO], agree=5, abstain_below=1)
    assert answer.abstained and answer.text == DONT_KNOW and answer.confidence is not None
    assert answer.value == "no" and answer.to_dict(evidence=False)["abstained"] is True
    alone, _ = asked([CUP], abstain_below=1)
    assert alone.text == "yes" and alone.confidence is None, "one program alone has no confidence"
