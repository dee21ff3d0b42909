"""The forms of a prompt for programs.

The completion prompt is the paper's, to the byte (Subramanian et al., ACL 2023): the preamble, then for each example
``# Image j: <Question>``, the line that opens the image, the program; last ``# Image k+1: <Question>``, which the model
continues with the opening line and the program. Instruction-tuned models are shown the same as turns of a chat, without
the numbered pictures, which they would copy.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Sequence

from ..core.question_kind import question_kind
from ..core.text import sentence_case
from ..core.trace import Form
from ..models.protocols import Message
from ..prompts import ProgramExample

CHAT_RULES = """\
Rules:
- {given}; do not open files and do not import anything.
- {query}() looks at one picture, never at a list. It returns a short text in lower case: "yes" or "no" to a yes/no \
question, digits to "How many ...?".
{advice}
- Keep every word that describes a thing: of "the small red cup" ask about "small red cup", not "cup".
- Set answer on every path, to the kind of answer that the question wants.

Reply with the Python program only."""
"""What follows the preamble in a chat."""

_GIVEN = {
    "image": "`img` is the picture and is given",
    "set": "`images` is the list of pictures and is given",
}
_ADVICE = {
    "knowledge": """\
- One visual_query() with the whole question will often do. Where the answer is not in the picture, ask visual_query() \
what the thing is, and then knowledge_query() about it by that name: it sees no picture.""",
    "image": """\
- One query() with the whole question will often do. Compare positions (left, right, above, below, higher, \
which side or half) with get_pos(), and ask one query() for each part of an "and", an "or" or a comparison.""",
    "set": """\
- Look at every picture in a loop. Only where the question names one (left, right, first) index it; \
find_matching_image() finds the one that it describes.
- To count things over all pictures add up int(query(img, "How many ...?")). Where something must be absent ask "Is \
there ...?" and look for "no". Keep a thing and what belongs to it in one query().""",
}
_SPARED = {
    "get_pos": (
        "Compare positions (left, right, above, below, higher, which side or half) with get_pos(), and ask one",
        "Ask one",
    ),
    "find_matching_image": ("; find_matching_image() finds the one that it describes.", "."),
}
"""How the advice reads where programs may not call one of these."""
_WANTED = {
    "yes_no": 'answer is "yes" or "no"',
    "number": "answer is a number",
    "choice": "answer is one of the things named",
    "open": "answer is a word or two",
}


def opening_line(form: Form, number: int) -> str:
    """Returns the line that opens the image (or set) of example ``number``."""
    if form == "set":
        return f'images = open_images("ImageSet{number}.jpg")'
    return f'img = open_image("Image{number}.jpg")'


def header(question: str, form: Form, number: int) -> str:
    """Returns the comment that introduces example ``number``."""
    return f"{heading(form, number)} {sentence_case(question, spaces=True)}"


def heading(form: Form, number: int) -> str:
    """Returns how the header of example ``number`` begins."""
    return f"# {'Image Set' if form == 'set' else 'Image'} {number}:"


def render_completion(preamble: str, examples: Sequence[ProgramExample], question: str, form: Form) -> str:
    """Returns the completion prompt, byte for byte as described above (no newline at its end)."""
    blocks = [preamble.rstrip("\n"), *map(_block, examples, range(1, len(examples) + 1))]
    blocks.append(header(question, form, len(examples) + 1))
    return "\n".join(blocks)


@functools.lru_cache(maxsize=1 << 14)
def _block(example: ProgramExample, number: int) -> str:
    opening = opening_line(example.form, number)
    return "\n".join((header(example.question, example.form, number), opening, example.program.strip("\n")))


def render_chat(
    preamble: str,
    examples: Sequence[ProgramExample],
    question: str,
    form: Form,
    *,
    tell_kind: bool = True,
    statements: bool = False,
    knowledge: bool = False,
    lacking: Collection[str] = (),
) -> tuple[Message, ...]:
    """Returns the prompt as turns: each example's question is a user turn and its program the assistant's.

    Args:
        preamble: instruction, constants and API reference.
        examples: in-context examples, in the order they are shown.
        question: the question.
        form: whether it is about one picture or a set.
        tell_kind: says after each question what kind of answer it wants.
        statements: whether a question may be a statement to be judged.
        knowledge: whether programs ask what is seen and what is known apart.
        lacking: names of primitives that programs may not call.
    """
    advice = _ADVICE["knowledge" if knowledge else form]
    for name in _SPARED.keys() & lacking:
        advice = advice.replace(*_SPARED[name])
    rules = CHAT_RULES.format(
        given=_GIVEN[form],
        query="visual_query" if knowledge else "query",
        advice=advice,
    )
    turns = [Message("system", f"{preamble.strip()}\n\n{rules}")]
    for example in examples:
        turns.append(Message("user", ask_in_chat(example.question, tell_kind, statements)))
        turns.append(Message("assistant", f"```python\n{example.program.strip()}\n```"))
    turns.append(Message("user", ask_in_chat(question, tell_kind, statements)))
    return tuple(turns)


@functools.lru_cache(maxsize=1 << 12)
def ask_in_chat(question: str, tell_kind: bool, statements: bool = False) -> str:
    """Returns the turn that asks for a program."""
    asked = f"# Question: {sentence_case(question)}"
    if not tell_kind:
        return asked
    kind = question_kind(question, statements=statements)
    wanted = " or ".join(f'"{choice}"' for choice in kind.choices)
    return f"{asked}\n# ({f'answer is {wanted}' if wanted else _WANTED[kind.kind]})"


KEPT = """
a an the this that these those it its they them their he she his her there here you someone
is are was were be being do does did has have had can could will would should
and or but nor if while as than not no none nothing neither either both each every all any some
in on at of to from with without by for into onto over under above below beside behind between near next front
around across inside outside against along through off up down
left right top bottom middle center centre side corner edge upper lower higher closer nearer farther
what which who whose where when why how many much kind type sort color colour material shape size
one two three four five six seven eight nine ten single pair couple number total half first second last
only exactly least most more less fewer same different other another also too
image images picture pictures photo photos
see look looks like called contain contains show shows include includes holding wearing facing
"""
"""Words that are kept: function words, numbers, places, and what questions of every subject ask."""
_KEPT = frozenset(KEPT.split())


def skeleton(question: str) -> str:
    """Returns a question with "thing" for each run of words that are not kept.

    >>> skeleton("The left image contains exactly two brown dogs.")
    'the left image contains exactly two thing'
    """
    words = (
        word if word in _KEPT or word.isdigit() else "thing" for word in re.findall(r"[a-z0-9]+", question.lower())
    )
    return re.sub(r"\bthing(?: thing)+\b", "thing", " ".join(words))
