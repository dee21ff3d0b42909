"""Words for the mini language model beyond its own world, so that it copies nouns instead of remembering them.

``rename`` exchanges the kinds and colors of a question and its program for everyday or made-up words.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from codevqa.core.question_kind import is_statement
from codevqa.mini.questions import SceneQuestion
from codevqa.mini.world import COLORS, KINDS, pluralize

NOUNS: tuple[str, ...] = tuple(
    """
    man woman boy girl child dog cat horse cow sheep elephant bear zebra giraffe bird duck person player skier
    surfer table chair couch bed desk shelf lamp clock vase window door wall floor mirror sink toilet towel oven
    fridge microwave plate bowl fork knife spoon glass mug pan pot pizza sandwich apple banana carrot donut cake
    burger salad cheese bread truck bus train bicycle motorcycle airplane helicopter taxi scooter wheel tire road
    street sidewalk bridge building tower fence gate bench sign pole mountain hill river lake beach ocean wave sky
    sun leaf branch bush grass rock sand snow field shirt jacket coat dress skirt shoe boot sock glove scarf helmet
    belt bag backpack suitcase purse wallet phone laptop keyboard mouse screen television remote camera book
    newspaper pen pencil paper box basket bucket barrel ladder rope ball bat racket skateboard snowboard surfboard
    kite frisbee net goal balloon candle ribbon button drum guitar piano violin trumpet statue fountain nest egg
    feather shell stone pumpkin tomato pepper onion potato orange lemon grape cherry spider butterfly bee ant frog
    turtle snake lizard lion tiger monkey rabbit squirrel goat pig chicken penguin seal robot rocket planet comet
    wagon cart tractor crane engine hammer nail saw wrench screw pipe brick tile curtain pillow blanket carpet
    drawer cabinet closet stove kettle teapot bottle jar can lid napkin tray menu ticket coin stamp letter envelope
    poster painting picture frame photo map globe banner badge medal trophy ring necklace bracelet watch
    triangle pentagon octagon oval rectangle cube sphere cylinder cone pyramid dot line arc spiral gear anchor block
    figure symbol square star heart house tree fish
    """.split()  # noqa: SIM905
)
COMPOUNDS: tuple[str, ...] = tuple(
    compound.replace("-", " ")
    for compound in """
    fire-truck traffic-light stop-sign parking-meter tennis-racket hot-dog wine-glass cell-phone teddy-bear hair-dryer
    baseball-bat street-lamp coffee-cup picnic-table soccer-ball fire-hydrant trash-can dining-table water-bottle
    palm-tree
    """.split()  # noqa: SIM905
)
IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "people", "knife": "knives", "shelf": "shelves",
    "leaf": "leaves", "mouse": "mice", "sheep": "sheep", "scarf": "scarves", "tomato": "tomatoes", "potato": "potatoes",
    "cherry": "cherries", "butterfly": "butterflies",
}  # fmt: skip
EXTRA_COLORS: tuple[str, ...] = tuple(
    """
    brown pink gray grey gold silver beige cyan teal maroon navy violet turquoise tan
    """.split()  # noqa: SIM905
)
ADJECTIVES: tuple[str, ...] = tuple(
    """
    wooden tall short striped shiny dark bright old young empty plastic metal round square long thin wide tiny huge
    wet dirty clean fluffy open closed spotted curly smooth leather broken heavy plain
    """.split()  # noqa: SIM905
)
GENERAL = (
    "what is the {n} doing?", "what is the {n} holding?", "who is next to the {n}?", "where is the {n}?",
    "what is on the {n}?", "what is the {n} made of?", "is the {n} {a}?", "what is behind the {n}?",
    "why is the {n} {a}?", "what is the weather like?", "what time of day is it?", "what room is this?",
    "which animal is on the {n}?", "is this {n} {a}?", "what sport is being played?", "who is wearing the {n}?",
    "what does the {n} look like?", "what is in front of the {n}?", "how is the {n} called?",
    "what is the {n} next to the {m}?",
    "does the {n} look {a}?", "is it {a}?", "what is the man near the {n} wearing?", "what are these?",
    "which kind of {n} is it?", "what is the {a} {n} used for?", "can you eat the {n}?", "is the {n} touching the {m}?",
    "how old is the {n}?", "what happens here?", "what is written on the {n}?", "where are the {n} and the {m}?",
)  # fmt: skip

_VOWELS, _CONSONANTS = "aeiou", "bcdfghjklmnprstvwz"
_FIXED_COLORS = ("verify", "choose_color", "color")
"""Families where an unknown adjective would be no color at all: they keep colors."""


def made_up(rng: random.Random) -> str:
    """A pronounceable word of two or three syllables, such as "bramid"."""
    word = "".join(
        rng.choice(_CONSONANTS) + (rng.choice("lr") if rng.random() < 0.15 else "") + rng.choice(_VOWELS)
        for _ in range(rng.choice((1, 2, 2, 3)))
    )
    return word + (rng.choice(_CONSONANTS) if rng.random() < 0.7 or len(word) < 4 else "")


def draw_noun(rng: random.Random) -> tuple[str, str]:
    """Any noun, with its plural."""
    chance = rng.random()
    if chance < 0.5:
        word = rng.choice(NOUNS)
        return word, IRREGULAR.get(word, pluralize(word))
    word = rng.choice(COMPOUNDS) if chance < 0.6 else made_up(rng)
    return word, pluralize(word)


def adjective(rng: random.Random, color: bool) -> str:
    """Any adjective, or any color."""
    chance = rng.random()
    if color or chance < 0.35:
        return rng.choice(EXTRA_COLORS)
    return rng.choice(ADJECTIVES) if chance < 0.7 else made_up(rng)


_ARTICLE = re.compile(r"\b([Aa])n? (?=(\w))")


def articles(text: str) -> str:
    """Puts "a" or "an" right everywhere."""
    return _ARTICLE.sub(lambda m: f"{m[1]}{'n' if m[2].lower() in 'aeiou' else ''} ", text)


def replace_words(text: str, words: Mapping[str, str]) -> str:
    """Exchanges whole words and mends the articles."""
    if not words:
        return text
    pattern = r"\b(" + "|".join(map(re.escape, words)) + r")\b"
    changed = re.sub(pattern, lambda m: words[m[1].lower()], text, flags=re.IGNORECASE)
    changed = articles(changed)
    return changed[:1].upper() + changed[1:] if text[:1].isupper() else changed


def rename(rng: random.Random, item: SceneQuestion, *, nouns: float = 0.7, adjectives: float = 0.35) -> SceneQuestion:
    """Exchanges each kind and color of an item with some chance, alike in question, program and answer."""
    asked, used = (set(re.findall(r"[a-z]+", text.lower())) for text in (item.question, item.question + item.program))
    words: dict[str, str] = {}
    for kind in KINDS:
        many = pluralize(kind)
        if (kind in asked or many in asked) and rng.random() < nouns:
            singular, more = draw_noun(rng)
            if singular in words.values() or singular in used:
                continue
            words |= {many: more, kind: singular}
    for color in () if "for color in" in item.program else COLORS:  # a list of colors must stay whole
        if color in asked and rng.random() < adjectives:
            word = adjective(rng, item.type in _FIXED_COLORS)
            if word not in words.values() and word not in used:
                words[color] = word
    if not words:
        return item
    # In a program only what stands in quotes is language.
    program = re.sub(r'"([^"\n]*)"', lambda quoted: f'"{replace_words(quoted[1], words)}"', item.program)
    question, answer = (replace_words(text, words) for text in (item.question, item.answer))
    return replace(item, question=question, answer=answer, program=program)


_SYNONYMS = {
    "picture": ("photo", "scene", "drawing", "image", "pic"), "image": ("photo", "picture"),
    "pictures": ("photos", "images", "pics"),
    "images": ("photos", "pictures"), "contains": ("includes", "has"), "contain": ("include", "have"),
    "show": ("depict", "include"), "shows": ("depicts", "includes"), "located": ("found", "standing"),
    "exactly": ("precisely", "just"), "total": ("all",), "further": ("farther",), "fewer": ("less",),
    "several": ("numerous", "multiple"), "different": ("distinct",),
    "touching": ("against", "next to"), "wall": ("border",), "object": ("thing", "item"), "contained": ("found",),
}  # fmt: skip
OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "bolt": ("lightning bolt", "lightning"), "boat": ("sailboat", "ship"), "boot": ("shoe",), "car": ("automobile",),
    "circle": ("disc", "dot"), "clock": ("alarm clock",), "cross": ("plus", "plus sign"), "cup": ("mug",),
    "diamond": ("rhombus",), "house": ("home",), "moon": ("crescent moon", "crescent"), "mushroom": ("toadstool",),
    "plane": ("airplane", "aeroplane"), "rocket": ("spaceship",), "envelope": ("letter",), "lamp": ("light",),
}  # fmt: skip
"""What people call the kinds of things beside their names; programs use the names."""
_OPENINGS = (
    "in this picture, ", "tell me, ", "please tell me: ", "i would like to know: ", "looking at the picture, ",
    "quick question: ", "so, ", "can you tell me: ", "please answer: ", "hey, ", "please, ", "hello, ", "ok, ",
    "could you tell me: ", "i have a question. ", "look at this. ", "look here. ", "here is what i want to know. ",
    "just checking: ", "let me ask: ", "hi there, ",
)  # fmt: skip


def reword(rng: random.Random, item: SceneQuestion) -> SceneQuestion:
    """Says a question a little differently; its program stays."""
    if rng.random() < 0.4:
        item = _drop_kind(item)
    question = item.question
    if rng.random() < 0.3:
        question = _called_otherwise(rng, question, item.program)
    for word, others in _SYNONYMS.items():
        # Words that the program repeats must stay.
        if word in question and word not in item.program and rng.random() < 0.3:
            question = re.sub(rf"\b{word}\b", rng.choice(others), question, flags=re.IGNORECASE)
    if rng.random() < 0.25:
        question = rng.choice(_OPENINGS) + question[:1].lower() + question[1:]
    if rng.random() < 0.25:
        endings: tuple[str, ...] = ("", "", "", "??", "!", ", please?", ", or not?", " please", " pls")
        if question.endswith("."):
            endings = (
                "",
                "",
                "!",
                ", right?",
                ", isn't it?",
                " isn't it",
                " right?",
                *((" true or false?", ". true or false?") if is_statement(question) else ()),
                ", correct?",
                ", or not?",
                "?",
                ". am i right?",
                ". is that true?",
            )
        question = question.rstrip("?.") + rng.choice(endings)
    elif question.endswith(".") and rng.random() < 0.15:
        question = rng.choice(("i think ", "i believe ", "i guess ", "is it true that ", "am i right that ")) + (
            question[:1].lower() + question[1:]
        )
    question = articles(question)
    return replace(item, question=question[:1].upper() + question[1:])


def _called_otherwise(rng: random.Random, question: str, program: str) -> str:
    """Calls a kind by another of its names; one that may be the answer keeps its own."""
    kinds = [kind for kind in OTHER_NAMES if re.search(rf"\b{kind}(?:es|s)?\b", question.lower())]
    kinds = [kind for kind in kinds if f'"{kind}"' not in program and f'"{pluralize(kind)}"' not in program]
    for kind in kinds[:2]:
        name = rng.choice(OTHER_NAMES[kind])
        question = replace_words(question, {pluralize(kind): pluralize(name), kind: name})
    return question


_SOME = re.compile(r"\b([Aa])n? (\w+) (thing|object|item|shape)\b")
_ANY = re.compile(r"\b(?:are there (?:any )?)(\w+) (thing|object|item|shape)s\b", re.IGNORECASE)


def _drop_kind(item: SceneQuestion) -> SceneQuestion:
    """Says "something red" for a red thing of any kind; its program calls it an object."""
    single, several = _SOME.search(item.question), _ANY.search(item.question)
    if single and single[2] != "same":
        text, name = f"{'S' if single[1] == 'A' else 's'}omething {single[2]}", (single[2], single[3])
        question = item.question.replace(single[0], text, 1)
    elif several:
        name = (several[1], several[2])
        question = item.question.replace(several[0], f"is there anything {several[1]}", 1)
    else:
        return item
    if any(word in question for word in (name[1], f"{name[1]}s")):  # named again
        return item
    program = re.sub(rf"\b{name[1]}(?=s?\b)", "object", item.program)
    program = re.sub(r"\ban? (?=object\b)", "an ", program)
    return replace(item, question=question[:1].upper() + question[1:], program=program)


_SPELLED = tuple(
    """
    black blue yellow circle circles square squares triangle triangles block blocks tower towers box boxes touching
    touches wall edge bottom above below exactly least contains objects items three four only there with picture
    pictures image images contain objects object first second third many more than color left right where which what
    number bigger smaller same different corner middle largest smallest there this both every does have
    """.split()  # noqa: SIM905
)
"""Words that people misspell; the program has them right."""


def misspell(rng: random.Random, item: SceneQuestion) -> SceneQuestion:
    """Misspells one or two words of a question that every training text knows; its program keeps them right."""
    present = [word for word in dict.fromkeys(re.findall(r"[a-z]+", item.question)) if word in _SPELLED]
    question = item.question
    for word in rng.sample(present, min(len(present), rng.choice((1, 1, 2)))):
        question = re.sub(rf"\b{word}\b", _slip(rng, word), question, count=1)
    return replace(item, question=question)


def _slip(rng: random.Random, word: str) -> str:
    """One slip of the fingers: a letter left out, doubled, exchanged with the next, or wrong."""
    place = rng.randrange(1, len(word) - 1)
    return rng.choice(
        (
            word[:place] + word[place + 1 :],
            word[:place] + word[place] + word[place:],
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + rng.choice("aeiourtlns") + word[place + 1 :],
        )
    )


def general(rng: random.Random, form: str) -> SceneQuestion:
    """A question of no known family: its program passes it on."""
    template = rng.choice(GENERAL)
    text = articles(template.format(n=draw_noun(rng)[0], m=draw_noun(rng)[0], a=adjective(rng, False)))
    question = text[:1].upper() + text[1:]
    if rng.random() < 0.2:
        return _ask_what_is_shown(rng, form)
    picture = "img" if form == "image" else "images[0]"
    program = f'answer = query({picture}, "{question}")'
    return SceneQuestion(question, "", program, "general", "image" if form == "image" else "set", "general.0")


_PLACES = (("the first {}", 0), ("the second {}", 1), ("the last {}", -1), ("{} 1", 0), ("{} 2", 1), ("{} 3", 2))


def _ask_what_is_shown(rng: random.Random, form: str) -> SceneQuestion:
    """Asks what a picture shows."""
    noun = rng.choice(("picture", "image"))
    name, place = rng.choice(_PLACES) if form == "set" else ("the {}", 0)
    name = name.format(noun)
    text = rng.choice(
        ("what does {} show?", "what is in {}?", "what can you see in {}?", "describe {}.", "what's in {}?")
    )
    picture = "img" if form == "image" else f"images[{place}]"
    program = f'answer = query({picture}, "What does the picture show?")'
    question = text.format(name)
    shape: Literal["image", "set"] = "image" if form == "image" else "set"
    return SceneQuestion(question[:1].upper() + question[1:], "", program, "general", shape, "general.1")
