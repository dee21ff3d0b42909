"""Reading an answer off captions: the prompt in both forms, and what is taken from a reply.

The completion prompt is the paper's, to the byte (CodeVQA, ACL 2023; after Plug-and-Play VQA, Tiong et al. 2022). A
chat model is shown the same as turns, and told what captions are: several looks at one picture, none of them complete.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ..core.question_kind import QuestionKind, question_kind
from ..core.text import sentence_case
from ..core.trace import Form
from ..models.base import Message
from ..prompts import ReadingExample

__all__ = ["INSTRUCTION", "answer_in", "render_context", "render_reading", "render_reading_chat"]

INSTRUCTION = "Please answer the question according to the above context."

CHAT_INSTRUCTION = """\
You are told what several looks at {pictures} showed, one short caption each, and asked a question. Each caption \
tells of a part of the picture, and a caption may be wrong: trust what several of them say. What no caption names is \
probably not in the picture. Answer with a single word, or as few words as possible: "yes" or "no" to a yes/no \
question, digits for a number."""
_PICTURES = {"image": "a picture", "set": "each of several pictures"}
_WANTED = {"yes_no": " Answer yes or no.", "number": " Answer with a number.", "choice": "", "open": ""}


def render_context(captions: Sequence[Sequence[str]], form: Form, labels: Sequence[str] | None = None) -> str:
    """Returns ``Context:`` with the captions of one picture, or one labelled line for each of a set."""
    lines = [" ".join(_sentence(caption) for caption in one) for one in captions]
    if form == "image":
        return f"Context: {lines[0]}".rstrip()
    names = _names(len(lines), labels)
    return "\n".join(["Context:", *(f"{name}: {line}".rstrip() for name, line in zip(names, lines, strict=True))])


def render_reading(
    examples: Sequence[ReadingExample],
    captions: Sequence[Sequence[str]],
    question: str,
    form: Form,
    labels: Sequence[str] | None = None,
) -> str:
    """Returns the reading prompt: the instruction, each example with its answer, then the question, up to ``A:``.

    Args:
        examples: in-context examples of the same form as the question.
        captions: captions read, one sequence a picture.
        question: the question, in any case.
        form: ``image`` for one picture, ``set`` for several.
        labels: names of the pictures of a set, such as left and right; None numbers them.
    """
    blocks = [_example_block(example, form, tuple(labels or ())) for example in examples]
    blocks.append(f"{render_context(captions, form, labels)}\n===\nQ: {sentence_case(question)}\nA:")
    return f"{INSTRUCTION}\n===\n" + "\n\n===\n".join(blocks)


def render_reading_chat(
    examples: Sequence[ReadingExample],
    captions: Sequence[Sequence[str]],
    question: str,
    form: Form,
    labels: Sequence[str] | None = None,
) -> tuple[Message, ...]:
    """Returns the reading prompt as turns, each example's answer a turn of the assistant's.

    Args:
        examples: as for :func:`render_reading`.
        captions: as for :func:`render_reading`.
        question: as for :func:`render_reading`.
        form: as for :func:`render_reading`.
        labels: as for :func:`render_reading`.
    """
    turns = [Message("system", CHAT_INSTRUCTION.format(pictures=_PICTURES[form]))]
    for example in examples:
        turns.append(Message("user", _turn(example.by_image, example.question, form, tuple(labels or ()))))
        turns.append(Message("assistant", example.answer))
    asked = _turn(tuple(map(tuple, captions)), question, form, tuple(labels or ()))
    return (*turns, Message("user", asked))


def answer_in(reply: str, kind: QuestionKind) -> str:
    """Returns the answer in a reader's reply, in the words of its kind and in lower case.

    A reader that talks says "No, there is no cup." where one word was wanted.
    """
    text = reply.strip().split("\n")[0].strip().lower()
    return kind.fitted(text.strip(" \"'").removesuffix(".")).lower()


@functools.lru_cache(maxsize=1024)
def _example_block(example: ReadingExample, form: Form, labels: tuple[str, ...]) -> str:
    context = render_context(example.by_image, form, labels)
    return f"{context}\n===\nQ: {sentence_case(example.question)}\nA: {example.answer}"


@functools.lru_cache(maxsize=1024)
def _turn(captions: tuple[tuple[str, ...], ...], question: str, form: Form, labels: tuple[str, ...]) -> str:
    kind = question_kind(question)
    wanted = f" Answer {' or '.join(kind.choices)}." if kind.choices else _WANTED[kind.kind]
    if form == "image":
        shown = "\n".join(["Captions:", *(f"- {caption}" for caption in captions[0])])
    else:
        named = zip(_names(len(captions), labels), captions, strict=True)
        shown = "\n".join(f"{name}:\n" + "\n".join(f"- {caption}" for caption in one) for name, one in named)
    return f"{shown}\nQuestion: {sentence_case(question)}{wanted}"


def _names(count: int, labels: Sequence[str] | None) -> Sequence[str]:
    return labels if labels and len(labels) == count else [f"Image {number}" for number in range(1, count + 1)]


def _sentence(caption: str) -> str:
    text = caption.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else text + "."
