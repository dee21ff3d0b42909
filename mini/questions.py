"""Questions about drawn scenes, each with a program and the answer that the program gets from the true scenes.

``questions.toml`` is the table of their kinds; what is here fills its slots. Yes and no are equally likely, and a "no"
asks for something that is nearly there: another color, another kind.
"""

from __future__ import annotations

import json
import random
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal

from .phrases import Phrase
from .place_slots import PLACE_MAKERS
from .set_slots import SET_MAKERS, style_of
from .slots import Maker, QuestionSlots, draw_amount, expand_options
from .thing_slots import THING_MAKERS
from .truth import run_program
from .untold_slots import UNTOLD_MAKERS
from .word_slots import WORD_MAKERS
from .world import COLORS, KINDS, Scene, pluralize

UNSEEN = "~"
"""Marks a wording that training never sees: in the table its first character, in ``SceneQuestion.wording`` the last."""
TRIES = 32
DULL = {"0": 0.8, "1": 0.5, "none": 0.7, "nothing": 0.7, "no": 0.7}
"""How often a question is passed over for its answer, which would be most of the answers.

"no" counts only for kinds that need not fit both ways."""


class NoQuestionError(LookupError):
    """Nothing of the kind can be asked about these scenes."""


@dataclass(frozen=True)
class SceneQuestion:
    """One question with its truth."""

    question: str
    answer: str
    """Lower case: "yes", "no", a color, a kind, a number in digits, a side, or a phrase of the question."""
    program: str
    """Without the line that opens the image; leaves the result in ``answer``."""
    type: str
    """Name of its kind."""
    form: Literal["image", "set"]
    wording: str
    """Which wording of the kind, e.g. ``exist.2``; ends with ``~`` when training never sees it."""
    slots: QuestionSlots = field(default_factory=QuestionSlots, compare=False, repr=False)

    @property
    def options(self) -> tuple[str, ...]:
        """The two answers of a choice in the order of the question; else empty."""
        return tuple(option.format(**vars(self.slots)) for option in TABLE[self.form][self.type].options)

    @property
    def phrases(self) -> list[Phrase]:
        """The descriptions of things that it speaks of, in order."""
        return _phrases(self.slots)


@dataclass(frozen=True)
class Condition:
    """A condition on one picture."""

    name: str
    said: str
    """As said after "a picture with"."""
    program: str
    """Over ``img``; its last line is the test."""
    slots: QuestionSlots

    def __str__(self) -> str:
        return self.said

    @property
    def test(self) -> str:
        """A Python expression."""
        return self.program.rpartition("\n")[2]

    @property
    def judged(self) -> str:
        """A program that says of ``img`` whether it is true."""
        *before, test = self.program.splitlines()
        return "\n".join((*before, f'answer = "yes" if {test} else "no"'))

    @property
    def loop(self) -> str:
        """A program that counts the pictures of which it is true."""
        *before, test = (f"    {line}" for line in self.program.splitlines())
        return "\n".join(("count = 0", "for img in images:", *before, f"    if {test.strip()}:", "        count += 1"))


@dataclass(frozen=True)
class QuestionFamily:
    """A row of the table."""

    name: str
    weight: float
    slots: dict[str, str]
    program: str
    wordings: Sequence[str]
    pictures: Sequence[int] = range(1, 6)
    styles: Sequence[str] = ("plain", "box", "tower")
    options: Sequence[str] = ()
    either: bool = True
    """Whether scenes must allow both yes and no. Where that is too rare, "no" is passed over often instead."""

    def draw(self, rng: random.Random, scenes: Sequence[Scene]) -> QuestionSlots | None:
        """Draws the slots for one of the scenes; None where they do not fit."""
        q = QuestionSlots(rng=rng, scenes=scenes, scene=rng.choice(scenes))
        for name, words in self.slots.items():
            maker, _, question = words.partition(": ")
            value = (
                draw_amount(q, question, plain="plain" in maker, total="total" in maker)
                if question
                else _MAKERS[maker](q)
            )
            if value is None:
                return None
            setattr(q, name, value)
        return q

    def code(self, q: QuestionSlots) -> str:
        """The program; all things, and those of a kind, it counts by color: captions seldom tell all at once."""
        program = self.program.format(**vars(q))
        program = _WHOLE.sub(_by_color(r"\1", "objects"), program)
        program = _KIND.sub("answer = " + _by_color("img", r"\1"), program)
        return _SUM.sub(r"answer = str(\1)", program)

    def question(self, place: int, q: QuestionSlots) -> str:
        """The question in one of the wordings."""
        text = " ".join(self.wordings[place].removeprefix(UNSEEN).format(**vars(q)).split())
        return text[:1].upper() + text[1:]


_WHOLE = re.compile(
    r'(?:int\()?query\((img|images\[-?\d\]), "How many (?:objects|items|things|shapes) are there\?"\)\)?'
)
_KIND = re.compile(
    rf'^answer = query\(img, "How many ({"|".join(pluralize(kind) for kind in KINDS)}) are there\?"\)$', re.MULTILINE
)
_SUM = re.compile(r"answer = (sum\(.*\))$", re.MULTILINE)


def _by_color(image: str, many: str) -> str:
    return f'sum([int(query({image}, f"How many {{color}} {many} are there?")) for color in {_list_literal(COLORS)}])'


def _list_literal(words: Sequence[str]) -> str:
    return json.dumps(list(words))


def _load_table() -> dict[str, dict[str, QuestionFamily]]:
    rows = tomllib.loads((files(__package__) / "questions.toml").read_text(encoding="utf-8"))
    within = rows.pop("within")
    table: dict[str, dict[str, QuestionFamily]] = {}
    for form, kinds in rows.items():
        table[form] = {}
        for name, row in kinds.items():
            wordings = [variant for wording in row.pop("wordings") for variant in expand_options(wording)]
            table[form][name] = QuestionFamily(
                name,
                program=row.pop("program").strip("\n").replace("COLORS", _list_literal(COLORS)),
                wordings=wordings,
                **row,
            )
    for name, row in within.items():
        for kind in table["image"].values():
            if asked := _within(f"{name}_{kind.name}", kind, row):
                table["set"][asked.name] = asked
    return table


_ABOUT_ITS_PICTURE = re.compile(r"\b(picture|image|here|drawn|shown|this)\b|[.,] |n't there\?|(that|it)\?")
"""Marks wordings that cannot be put to one picture of a set."""


def _within(name: str, kind: QuestionFamily, row: dict[str, Any]) -> QuestionFamily | None:
    """The kind of question that puts one about a single picture to one picture of a set; None without a wording."""
    wordings = []
    frames = [frame for several in row["wordings"] for frame in expand_options(several)]
    for wording in kind.wordings:
        text, end = wording.removeprefix(UNSEEN)[:-1], wording[-1]
        if "plain" in kind.styles and not _ABOUT_ITS_PICTURE.search(text + end):
            wordings += [UNSEEN * wording.startswith(UNSEEN) + frame.replace("{}", text) + end for frame in frames]
    if not wordings:
        return None
    return QuestionFamily(
        name,
        weight=row["weight"] * kind.weight,
        slots={**row["slots"], **kind.slots},
        program=f"{row['opening']}\n{kind.program}",
        wordings=wordings,
        pictures=range(2, 6),
        styles=("plain",),
        options=kind.options,
        either=kind.either,
    )


TABLE = _load_table()
"""Kinds by form ("image", "set", or "condition") and name."""


def _phrases(q: QuestionSlots) -> list[Phrase]:
    phrases: list[Phrase] = []
    for value in vars(q).values():
        if isinstance(value, Phrase):
            phrases.append(value)
        elif isinstance(value, Condition):
            phrases += _phrases(value.slots)
    return phrases


def _condition(fits: Callable[[QuestionFamily], bool]) -> Maker:
    def make(q: QuestionSlots) -> Condition | None:
        style = style_of(q.scenes)
        kinds = [kind for kind in TABLE["condition"].values() if style in kind.styles and fits(kind)]
        kind = q.rng.choices(kinds, [option.weight for option in kinds])[0]
        slots = kind.draw(q.rng, q.scenes)
        if slots is None:
            return None
        question = kind.question(q.rng.randrange(len(kind.wordings)), slots)
        question = question[:1].lower() + question[1:]
        if any(isinstance(value, Condition) and value.said == question for value in vars(q).values()):
            return None
        return Condition(kind.name, question, kind.code(slots), slots)

    return make


_MAKERS: dict[str, Maker] = {
    **THING_MAKERS,
    **WORD_MAKERS,
    **PLACE_MAKERS,
    **SET_MAKERS,
    **UNTOLD_MAKERS,
    "condition": _condition(lambda kind: True),
    "plain condition": _condition(lambda kind: kind.name != "lacks"),
    "contains": _condition(lambda kind: kind.name == "contains"),
    "simple condition": _condition(lambda kind: kind.name != "two" and "\n" not in kind.program),
}


def draft(
    rng: random.Random, scenes: Sequence[Scene], kind: QuestionFamily, form: Literal["image", "set"]
) -> SceneQuestion | None:
    """Draws a question without its answer; None where its slots do not fit the scenes."""
    q = kind.draw(rng, scenes)
    if q is None:
        return None
    place = rng.randrange(len(kind.wordings))
    wording = f"{kind.name}.{place}{UNSEEN if kind.wordings[place].startswith(UNSEEN) else ''}"
    return SceneQuestion(kind.question(place, q), "", kind.code(q), kind.name, form, wording, q)


def sample_question(
    rng: random.Random,
    scene_or_scenes: Scene | Sequence[Scene],
    kind: str | None = None,
    wanted: Callable[[SceneQuestion], bool] = lambda item: True,
) -> SceneQuestion:
    """Asks something about a scene, or about a set of scenes.

    Args:
        rng: Where the chance comes from; the same state gives the same question.
        scene_or_scenes: One scene, or a list of one style.
        kind: Name of a kind; None takes any that fits.
        wanted: Judges a question before its answer is known.

    Raises:
        NoQuestionError: no such kind, or it has no question about this scene.
    """
    form: Literal["image", "set"] = "image" if isinstance(scene_or_scenes, Scene) else "set"
    scenes = [scene_or_scenes] if isinstance(scene_or_scenes, Scene) else list(scene_or_scenes)
    if kind is not None and kind not in TABLE[form]:
        raise NoQuestionError(f"no question family {kind!r}; there are {', '.join(TABLE[form])}")
    style = style_of(scenes)
    many = min(len(scenes), 5)  # what can be asked about five can be asked about more
    kinds = [option for option in TABLE[form].values() if many in option.pictures and style in option.styles]
    if kind is not None:
        kinds = [replace(option, weight=1.0) for option in kinds if option.name == kind]
    for _ in range(60 if kinds else 0):
        chosen = rng.choices(kinds, [option.weight for option in kinds])[0]
        item = _ask_balanced(rng, scenes, chosen, form, wanted)
        if item is not None:
            return item
    raise NoQuestionError(f"no question of family {kind!r} fits this scene")


def _ask_balanced(
    rng: random.Random,
    scenes: Sequence[Scene],
    kind: QuestionFamily,
    form: Literal["image", "set"],
    wanted: Callable[[SceneQuestion], bool],
) -> SceneQuestion | None:
    """Asks only what could have been answered either way, so yes and no are equally likely whatever the scene."""
    by_answer: dict[str, SceneQuestion] = {}
    for _ in range(TRIES):
        item = draft(rng, scenes, kind, form)
        if item is None or not wanted(item):
            continue
        item = replace(item, answer=run_program(item.program, scenes, form))
        if item.answer not in ("yes", "no") or not kind.either:
            return item if rng.random() >= DULL.get(item.answer, 0.0) else None
        by_answer.setdefault(item.answer, item)
        if len(by_answer) == 2:
            return by_answer[rng.choice(("yes", "no"))]
    return None


def other_wording(item: SceneQuestion) -> str | None:
    """The same question in other words, which training may use; None when it has no others."""
    kind, first = TABLE[item.form][item.type], int(item.wording.rpartition(".")[2].rstrip(UNSEEN))
    for place in (*range(first + 1, len(kind.wordings)), *range(first)):
        other = kind.question(place, item.slots)
        if other != item.question and not kind.wordings[place].startswith(UNSEEN):
            return other
    return None
