"""Several programs for one question: random worlds, and the choice among them."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from engine_kit import GREEN, RED, engine
from sandbox_kit import IMAGES

from codevqa import Answer, QuerySettings, Settings, WriterSettings
from codevqa.core.answer_words import DONT_KNOW
from codevqa.core.errors import InputError, ModelError, PromptTooLongError
from codevqa.core.events import Answered, Event, Rejected
from codevqa.engine import program_runs
from codevqa.models.fakes import ScriptedLM
from codevqa.models.protocols import GenerationRequest
from codevqa.primitives import Image, Primitive, primitive
from codevqa.primitives.context import CallContext
from codevqa.primitives.detection import DETECTION
from codevqa.primitives.sets import SETS
from codevqa.primitives.visual import VISUAL
from codevqa.sandbox import Limits, Sandbox
from codevqa.writing.choice import try_out
from codevqa.writing.worlds import Behaviour

GOLD = Path(__file__).parents[1] / "benchmarks" / "gold"


def lived(*programs: str, images: Sequence[Image] = IMAGES, seed: int = 0) -> list[Behaviour]:
    async def run() -> list[Behaviour]:
        limits = Limits(seconds=1)
        async with Sandbox(VISUAL.extend(DETECTION), limits, workers=2) as sandbox:
            return [trial.behaviour for trial in await try_out(programs, sandbox, images, str, seed)]

    return asyncio.run(run())


def faults(*programs: str, images: Sequence[Image] = IMAGES) -> list[str | None]:
    async def run() -> list[str | None]:
        async with Sandbox(VISUAL.extend(SETS), Limits(seconds=1), workers=2) as sandbox:
            return [trial.fault for trial in await try_out(programs, sandbox, images, str)]

    return asyncio.run(run())


def test_worlds_are_the_same_for_equal_wordings_and_differ_by_picture_and_seed() -> None:
    asked = ("Is there a red cup?", "Are there any red cups?", "do you see the red cup?", "Is there a blue cup?")
    programs = [f"answer = query(images[0], {question!r})" for question in asked]
    counted = "answer = 'yes' if int(query(images[0], 'How many red cups are there?')) > 0 else 'no'"
    boxed = "answer = 'yes' if find_object(images[0], 'red cup') else 'no'"
    elsewhere = programs[0].replace("[0]", "[1]")
    answers = lived(*programs, counted, boxed, elsewhere, programs[0])
    assert len(set(answers)) == 3 and len({*answers[:3], *answers[4:6], answers[7]}) == 1
    assert {*answers[0]} == {"yes", "no"}
    assert answers == lived(*programs, counted, boxed, elsewhere, programs[0])
    assert answers[0] != lived(programs[0], seed=1)[0]


@pytest.mark.parametrize(("words", "sign"), [("at least 3", ">="), ("exactly two", "=="), ("fewer than 2", "<")])
def test_an_amount_that_is_asked_for_is_held_against_the_count(words: str, sign: str) -> None:
    number = {"3": 3, "two": 2, "2": 2}[words.split()[-1]]
    asked = f"answer = query(images[0], 'Are there {words} cups on the table?')"
    counted = (
        f"n = int(query(images[0], 'How many cups are on the table?'))\nanswer = 'yes' if n {sign} {number} else 'no'"
    )
    answers = lived(asked, counted)
    assert answers[0] == answers[1] and {*answers[0]} == {"yes", "no"}


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
    assert left == tuple("yes" if answer == "yes" else None for answer in yes)
    assert keyed == yes and {*kept} == {"5"} and {*max_} == {"2"}
    assert {*wrong, *endless, *unread} == {None}


def test_a_program_in_a_loop_over_worlds_does_what_it_does_alone() -> None:
    asked = 'answer = query(images[0], "Is there a cup?")\n'
    yes, lines, new, heavy, deep, ends, left, skips = lived(
        asked,
        asked.replace('"Is there ', '"""Is there\n\n').replace('?"', '?"""'),
        "d = {'a': 'cup'}\n" + 'answer = query(images[0], f"Is there a {d["a"]}?")',
        f'{asked}held = "a" * (1 << 30 if answer == "yes" else 1)',
        f'def deep():\n    return deep()\n{asked}if answer == "yes":\n    deep()',
        f"{asked}if answer == 'x':\n    break",
        f"{asked}if answer == 'x':\n    return",
        f"{asked}if answer == 'x':\n    continue",
    )
    assert yes == lines == new and {*yes} == {"yes", "no"}
    assert heavy == deep == tuple(None if answer == "yes" else answer for answer in yes)
    assert {*ends, *left, *skips} == {None}


YES = 'answer = "yes" if {} else "no"'
DOUBTS: list[tuple[str, str | None]] = [
    (YES.format("False"), "blind"),
    (YES.format("any([query(images[0], 'Is there a cup?'), query(images[1], 'Is there a cup?')])"), "blind"),
    ('answer = query(images[0], "Is it red?")\nanswer = all(["no"])', "blind"),
    (YES.format("query(images[0], 'Is it red?') and query(images[1], 'Is it big?') == 'yes'"), "unread"),
    ('left = query(images[0], "How many?")\nanswer = query(images[1], "How many dogs?")', "unread"),
    ('answer = query(images[0], "Is it red?")', "one picture"),
    ('cups = [query(one, "Is there a cup?") for one in images]\nanswer = cups[0]', "one picture"),
    ("answer = (", "fails"),
    ("while True: pass", "fails"),
    (YES.format("all([query(one, 'Is there a cup?') == 'yes' for one in images * 3])"), None),
    (YES.format("[query(one, 'How many cups?') for one in images[:2]] == ['1', '4']"), None),
    (YES.format("sum([int(query(one, 'How many cups?')) for one in images]) >= 9"), None),
    ('color = query(images[0], "What color?")\nanswer = query(images[1], f"Is it {color}?")', None),
    ('answer = query(find_matching_image(images, "a cup"), "Is it red?")', None),
    ('answer = count(images, "a dog")', None),
    (
        'color = query(images[0], "What color?")\nsame = query(images[1], f"Is it {color}?")\n'
        'answer = same if color == "blue" else query(images[2], "Is it big?")',
        None,
    ),
    ("answer = len(images)", None),
    ("answer = len(images) > 0", "blind"),
    ('answer = len(select(images, "a dog")) == 3', None),
]
"""Programs about three pictures, and what is wrong with them."""


@pytest.mark.parametrize(("program", "fault"), DOUBTS, ids=str)
def test_what_changes_nothing_is_told_by_what_a_program_does(program: str, fault: str | None) -> None:
    assert faults(program) == [fault]
    assert faults(program, YES.format("False")) == [fault, "blind"], "beside another"


def test_what_holds_of_twelve_pictures_at_once_is_no_constant() -> None:
    pictures = [replace(IMAGES[0], index=number) for number in range(1, 13)]
    program = "[query(one, 'Is there a {}?') == 'yes' for one in images]"
    both = f"all({program.format('cup')}) and not any({program.format('cat')})"
    assert faults(YES.format(both), images=pictures) == [None]


def test_no_program_of_a_careful_annotator_is_refused() -> None:
    for name, count in (("gqa", 1), ("covr", 5), ("nlvr2", 2)):
        for line in (GOLD / f"{name}.jsonl").read_text().splitlines()[::3]:
            program = json.loads(line)["program"]
            assert faults(program, images=IMAGES[:count])[0] in (None, "one picture"), program


def test_a_program_that_is_slow_in_the_worlds_is_not_refused() -> None:
    slow = 'query(images[0], "Is it red?")\nfor one in range(400000): pass\nanswer = query(images[1], "Is it big?")'
    begun = time.monotonic()
    assert faults(slow) == [None] and time.monotonic() < begun + 5


CUP = 'answer = query(img, "Is there a cup?")'
ALIKE = "answer = 'yes' if int(query(img, 'How many cups are there?')) else 'no'"
OTHER = 'answer = query(img, "Is it red?")'
BIG = 'answer = query(img, "Is it big?")'
SMALL = 'answer = query(img, "Is it small?")'
NO = 'answer = "no"'


def asked(
    programs: Sequence[str | ModelError],
    k: int | Literal["auto"] = 1,
    *,
    repairs: int = 0,
    calls: int = 200,
    event_log: Any = (),
    refuse: bool = True,
    cheap: bool = False,
    images: Any = RED,
    primitives: Sequence[Primitive] = (),
    **numbers: Any,
) -> tuple[Answer, ScriptedLM]:
    settings = Settings(
        writer=WriterSettings(selection="random", repairs=repairs, programs=k, refuse=refuse),
        query=QuerySettings(captions=1, patches=5),
        limits=Limits(calls=calls),
        **numbers,
    )
    left, written = iter(programs), dict[Any, str | ModelError]()

    def write(request: GenerationRequest) -> str:
        if request.prompt not in written:  # a batch that fails is asked again, one by one
            written[request.prompt] = next(left)
        text = written[request.prompt]
        if isinstance(text, ModelError):
            raise text
        return text

    model = ScriptedLM(write, cheap=cheap)
    no = dict.fromkeys(("Is it red?", "Is it big?", "Is it small?"), "no")
    with engine(model, answers=no, settings=settings, primitives=primitives) as vqa:
        events = list(vqa.watch(images, "Is there a cup?"))
    event_log += (*events,)
    assert isinstance(events[-1], Answered)
    return events[-1].answer, model


def test_another_program_is_written_for_one_that_is_refused(tmp_path: Path) -> None:
    texts = 'answer = query(img, "Is there a cup?")\nanswer = all(["no"])'
    answer, model = asked([texts, CUP])
    assert answer.program is not None and answer.program.source == CUP and answer.text == "yes"
    assert [(draft.fault, draft.chosen) for draft in answer.trace.drafts] == [("blind", False), (None, True)]
    assert model.batches == [1, 1] and answer.confidence is None and not answer.warnings
    assert answer.program.examples != answer.trace.drafts[0].examples
    assert Answer.from_json(answer.to_json()) == answer
    answer.save_html(tmp_path / "answer.html")
    assert "refused: its answer is always the same" in (tmp_path / "answer.html").read_text()


def test_a_program_is_tried_once_for_a_statement_about_many_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Sequence[str]] = []

    async def counted(programs: Sequence[str], *rest: Any) -> Any:
        tried.append(programs)
        return await try_out(programs, *rest)

    monkeypatch.setattr(program_runs, "try_out", counted)
    with engine(CUP) as vqa:
        asked_of = [(picture, "Is there a cup?") for picture in (RED, GREEN, RED)]
        assert [answer.text for answer in vqa.ask_many(asked_of)] == ["yes"] * 3
        vqa.ask(RED, "Is it a cup?")
    assert len(tried) == 2, "once for each question"


def test_three_that_agree_and_are_refused_are_not_enough() -> None:
    answer, model = asked([NO, NO, NO, CUP, CUP], 5)
    assert answer.program is not None and answer.program.source == CUP and model.batches == [3, 2]


def test_a_baseline_is_not_warned_of_for_the_program_that_it_stands_for() -> None:
    @primitive
    async def seven(context: CallContext, img: Image) -> int:
        """Returns the number of sevens."""
        return 7

    answer, _ = asked(['first = 1 // (seven(img) - 7)\nanswer = "no"'] * 2, primitives=[seven])
    assert [draft.fault for draft in answer.trace.drafts] == ["blind", "blind"]
    assert answer.fallback and not answer.warnings


def test_one_program_that_is_not_refused_is_run_as_it_is() -> None:
    answer, model = asked([CUP])
    assert answer.text == "yes" and model.batches == [1] and answer.trace.drafts == ()
    answer, model = asked([NO], refuse=False)
    assert answer.text == "no" and model.batches == [1] and answer.trace.drafts == () and not answer.warnings


def test_where_every_program_is_refused_the_answer_of_the_best_carries_a_warning() -> None:
    answer, model = asked([NO, 'answer = "yes"'])
    assert answer.text == "no" and [draft.fault for draft in answer.trace.drafts] == ["blind", "blind"]
    assert [warning.kind for warning in answer.warnings] == ["unsure"] and answer.confidence is None
    assert "always the same" in answer.warnings[0].message and len(model.requests) == 2
    many, model = asked(['answer = "yes"', NO, NO, NO, NO], 5)
    assert many.text == "no" and many.warnings == answer.warnings and model.batches == [3, 2]
    assert many.confidence is None
    assert Answer.from_json(many.to_json()) == many


def test_a_program_that_fails_is_better_than_one_that_is_refused() -> None:
    broken, _ = asked([NO, "answer = ("])
    assert broken.fallback and broken.text and not broken.warnings, "the baseline is no program"
    mended, _ = asked(["answer = (", NO], repairs=1)
    assert mended.text == "no" and [warning.kind for warning in mended.warnings] == ["unsure"]
    assert mended.trace.drafts == ()


def test_a_program_that_the_worlds_cannot_run_is_run_on_the_pictures() -> None:
    @primitive
    async def label(context: CallContext, img: Image) -> str:
        """Reads the label."""
        return "weight: 3 kg"

    weighed = 'answer = "yes" if int(label(img).split()[1]) == 3 else "no"'
    for k in (1, 5):
        answer, _ = asked([weighed] * 5, k, primitives=[label])
        assert answer.text == "yes" and answer.error is None and not answer.warnings


LEFT = 'answer = query(images[0], "Is there a cup?")'
BOTH = 'answer = "yes" if all([query(img, "Is there a cup?") == "yes" for img in images]) else "no"'


@pytest.mark.parametrize(
    ("programs", "chosen"), [([LEFT, BOTH], BOTH), ([LEFT, LEFT], LEFT), ([BOTH], BOTH), ([LEFT, "answer = ("], LEFT)]
)
def test_a_program_about_one_of_two_pictures_needs_a_second_that_does_the_same(
    programs: Sequence[str], chosen: str
) -> None:
    answer, model = asked(programs, images=[RED, GREEN])
    assert answer.program is not None and answer.program.source == chosen
    assert len(model.requests) == len(programs) and not answer.warnings


@pytest.mark.parametrize("k", [0, 1000, "five", True, None])
def test_how_many_programs_is_a_small_number(k: Any) -> None:
    with pytest.raises(InputError, match=r"writer\.programs must be"):
        WriterSettings(programs=k)


def test_a_later_program_whose_prompt_is_too_long_is_not_missed() -> None:
    answer, _ = asked([CUP, PromptTooLongError("The prompt is too long.")], 2)
    assert answer.text == "yes" and answer.trace.drafts == ()


def test_more_programs_are_written_by_default_where_they_cost_little() -> None:
    answer, model = asked([CUP, ALIKE], "auto", cheap=True)
    assert model.batches == [2] and len(answer.trace.drafts) == 2
    answer, model = asked([NO, CUP, ALIKE], "auto", cheap=True)
    assert model.batches == [2, 1] and answer.program is not None and answer.program.source == CUP
    answer, model = asked([CUP], "auto")
    assert model.batches == [1], "a model that says nothing of itself is dear"
    assert WriterSettings().programs == "auto"


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
    answer, _ = asked([CUP, OTHER, BIG, NO, SMALL], agree=5)
    drafts = answer.trace.drafts
    assert [draft.answer for draft in drafts] == ["yes", "no", "no", None, "no"], "one that is refused has no vote"
    assert answer.text == "no" and answer.program is not None and answer.program.source in (OTHER, BIG, SMALL)
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
    event_log: list[Event] = []
    answer, _ = asked([fails, fails, OTHER], agree=3, event_log=event_log)
    assert answer.text == "no" and not answer.fallback
    assert [draft.answer for draft in answer.trace.drafts] == [None, None, "no"]
    assert [event.next for event in event_log if isinstance(event, Rejected)] == ["others"]
    answer, _ = asked([fails, fails, f"{BIG}\nanswer = int(answer)"], agree=3)
    assert answer.fallback and answer.error is not None and answer.confidence is None
    assert answer.trace.attempts == ((answer.program, answer.error),)
    assert [call.value for call in answer.trace.calls] == ["yes"], "of the program that is shown"
    assert answer.text and {draft.answer for draft in answer.trace.drafts} == {None}


def test_an_answer_that_is_not_sure_enough_is_not_given() -> None:
    answer, _ = asked([CUP, OTHER, BIG, NO, SMALL], agree=5, abstain_below=1)
    assert answer.abstained and answer.text == DONT_KNOW and answer.confidence is not None
    assert answer.value == "no" and answer.to_dict(evidence=False)["abstained"] is True
    alone, _ = asked([CUP], abstain_below=1)
    assert alone.text == "yes" and alone.confidence is None, "one program alone has no confidence"
