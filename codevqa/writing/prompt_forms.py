"""The forms of a prompt for programs, and cutting the program out of what a model makes of it.

The completion prompt is the paper's, to the byte (Subramanian et al., ACL 2023): the preamble, then for each example
``# Image j: <Question>``, the line that opens the image, the program; last ``# Image k+1: <Question>``, which the model
continues with the opening line and the program. Instruction-tuned models are shown the same as turns of a chat, without
the numbered pictures, which they would copy.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Sequence

from ..core.program_tree import parse
from ..core.question_kind import question_kind
from ..core.text import sentence_case
from ..core.trace import Form
from ..models.base import Message
from ..prompts import Example

STOP = ("\n# Image",)
"""A new example header ends the program."""

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
    kind = "Image Set" if form == "set" else "Image"
    return f"# {kind} {number}: {sentence_case(question, spaces=True)}"


def render_completion(preamble: str, examples: Sequence[Example], question: str, form: Form) -> str:
    """Returns the completion prompt, byte for byte as described above (no newline at its end)."""
    blocks = [preamble.rstrip("\n"), *map(_block, examples, range(1, len(examples) + 1))]
    blocks.append(header(question, form, len(examples) + 1))
    return "\n".join(blocks)


@functools.lru_cache(maxsize=1 << 14)
def _block(example: Example, number: int) -> str:
    opening = opening_line(example.form, number)
    return "\n".join((header(example.question, example.form, number), opening, example.program.strip("\n")))


def render_chat(
    preamble: str,
    examples: Sequence[Example],
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
    wanted = " or ".join(f'"{one}"' for one in kind.choices)
    return f"{asked}\n# ({f'answer is {wanted}' if wanted else _WANTED[kind.kind]})"


_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)
_CONTROL = re.compile(r"<[|｜][\w▁ -]+[|｜]>")
"""A control token that a server or tokenizer did not take for an end, such as ``<|fim_middle|>``."""
_OPENING = re.compile(r"\s*(?:img\s*=\s*open_image|images\s*=\s*open_images)\s*\(")


def extract_program(completion: str, *, continued: bool = False) -> str:
    """Cuts the program out of what the model wrote: without code fences, prose around them, or a next header.

    Args:
        completion: what the model wrote.
        continued: whether it continued a completion prompt, which ends inside a comment.
    """
    text = _CONTROL.split(completion.replace("\r\n", "\n").replace("\r", "\n"))[0]
    first, _, rest = text.partition("\n")
    if continued and first.strip() and not _OPENING.match(first):
        # What comes before the first line end may belong to the comment: a "?" that the question lacks, a clause more.
        text = rest if not (first[0].isalpha() or first[0] in "_`#") or _OPENING.match(rest) else text
    fenced = _FENCE.search(text)
    if fenced:
        text = fenced.group(1)
    text = text.strip("\n").split(STOP[0])[0]
    lines = text.split("\n")
    # Some models repeat the header they were given before they go on.
    while lines and (not lines[0].strip() or re.match(r"#\s*(?:Image|Question|\()", lines[0])):
        lines.pop(0)
    return "\n".join(line.rstrip() for line in lines).rstrip()


def with_answer(source: str) -> str:
    """Returns a program that never names ``answer`` with its last call's value as the answer; else the same.

    Small language models end a program with the call that makes the answer. Annotators' programs never do, so nothing
    else can be meant. This is the one mend of a program.

    Args:
        source: the program; hostile input, which is parsed within bounds.

    >>> print(with_answer('cup = query(img, "Is there a cup?")'))
    cup = query(img, "Is there a cup?")
    answer = cup
    """
    tree = None if re.search(r"\banswer\b", source) else parse(source)
    match tree.body[-1:] if tree is not None else []:
        case [ast.Assign(targets=[ast.Name(name)], value=value)] if any(
            isinstance(part, ast.Call) for part in ast.walk(value)
        ):
            return f"{source}\nanswer = {name}"
        case [ast.Expr(ast.Call(ast.Name(name))) as last] if name != "print" and last.col_offset == 0:
            lines = source.split("\n")
            lines[last.lineno - 1] = f"answer = {lines[last.lineno - 1]}"
            return "\n".join(lines)
    return source
