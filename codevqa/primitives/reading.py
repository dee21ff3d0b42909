"""Reading an answer off captions: the prompt in both forms, and what is taken from a reply.

The completion prompt is the paper's, to the byte (CodeVQA, ACL 2023; after Plug-and-Play VQA, Tiong et al. 2022). A
chat model is shown the same as turns, and told what captions are: several looks at one picture, none of them complete.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ..core.question_kind import Wording, question_kind
from ..core.text import one_line, sentence_case
from ..core.trace import Form
from ..models.protocols import Message
from ..prompts import KnowledgeExample, ReadingExample

INSTRUCTION = "Please answer the question according to the above context."

CHAT_INSTRUCTION = """\
You are told what several looks at {pictures} showed, one short caption each, and asked a question. Each caption \
tells of a part of the picture, and a caption may be wrong: trust what several of them say. What no caption names is \
probably not in the picture. Answer with a single word, or as few words as possible: "yes" or "no" to a yes/no \
question, digits for a number."""
KNOWLEDGE_CHAT = """\
You are asked about general knowledge. Answer with a single word, or as few words as possible: "yes" or "no" to a \
yes/no question, digits for a number."""
_PICTURES = {"image": "a picture", "set": "each of several pictures"}
_WANTED = {"yes_no": " Answer yes or no.", "number": " Answer with a number.", "choice": "", "open": ""}


def _sentence(caption: str) -> str:
    text = _upper_first(caption.strip())
    return text if text.endswith(".") else text + "."


def render_context(
    captions: Sequence[Sequence[str]],
    form: Form,
    labels: Sequence[str] | None = None,
    *,
    among_sets: bool = False,
    sentence: Callable[[str], str] = _sentence,
) -> str:
    """Returns ``Context:`` with the captions of one picture, or one labelled line for each of a set.

    Args:
        captions: captions read, one sequence a picture.
        form: ``image`` for one picture, ``set`` for several.
        labels: names of the pictures of a set; None numbers them.
        among_sets: whether the captions of one picture stand on a line of their own, as those of sets do.
        sentence: makes a sentence of a caption.
    """
    lines = [" ".join(map(sentence, group)) for group in captions]
    if form == "image":
        return ("Context:\n" if among_sets else "Context: ") + lines[0] if lines[0] else "Context:"
    names = _image_names(len(lines), labels)
    return "\n".join(["Context:", *(f"{name}: {line}".rstrip() for name, line in zip(names, lines, strict=True))])


def render_reading(
    examples: Sequence[ReadingExample],
    captions: Sequence[Sequence[str]],
    question: str,
    form: Form,
    labels: Sequence[str] | None = None,
    wording: Wording = "plain",
) -> str:
    """Returns the reading prompt: the instruction, each example with its answer, then the question, up to ``A:``.

    Args:
        examples: in-context examples, each shown in its own form.
        captions: captions read, one sequence a picture.
        question: the question, in any case.
        form: ``image`` for one picture, ``set`` for several.
        labels: names of the pictures of a set, such as left and right; None numbers them.
        wording: ``release`` writes captions and questions as the paper's release does, capitals and full stops
            included; all others alike.
    """
    blocks = [_example_block(example, tuple(labels or ()), wording) for example in examples]
    sets = any(example.form == "set" for example in examples)
    sentence, asked = _sentence, sentence_case(question)
    if wording == "release":
        sentence, asked = (
            _released_set if form == "set" else _release_sentence,
            _upper_first(one_line(question, spaces=True)),
        )
    context = render_context(captions, form, labels, among_sets=sets, sentence=sentence)
    return f"{INSTRUCTION}\n===\n" + "\n\n===\n".join([*blocks, f"{context}\n===\nQ: {asked}\nA:"])


def render_reading_chat(
    examples: Sequence[ReadingExample],
    captions: Sequence[Sequence[str]],
    question: str,
    form: Form,
    labels: Sequence[str] | None = None,
    statements: bool = False,
) -> tuple[Message, ...]:
    """Returns the same as turns, each example's answer a turn of the assistant's."""
    turns = [Message("system", CHAT_INSTRUCTION.format(pictures=_PICTURES[form]))]
    for example in examples:
        turns.append(
            Message("user", _turn(example.by_image, example.question, example.form, tuple(labels or ()), statements))
        )
        turns.append(Message("assistant", example.answer))
    asked = _turn(tuple(map(tuple, captions)), question, form, tuple(labels or ()), statements)
    return (*turns, Message("user", asked))


def render_knowledge(examples: Sequence[KnowledgeExample], question: str) -> str:
    """Returns the prompt for a question about no picture: the instruction, each example, the question, up to ``A:``."""
    answered = (f"Q: {example.question}\nA: {example.answer}" for example in examples)
    return "\n===\n".join(["Answer each question.", *answered, f"Q: {question}\nA:"])


def render_knowledge_chat(examples: Sequence[KnowledgeExample], question: str) -> tuple[Message, ...]:
    """Returns the same as turns."""
    turns = [Message("system", KNOWLEDGE_CHAT)]
    for example in examples:
        turns.append(Message("user", f"{example.question}{_WANTED[question_kind(example.question).kind]}"))
        turns.append(Message("assistant", example.answer))
    return (*turns, Message("user", f"{question}{_WANTED[question_kind(question).kind]}"))


@functools.lru_cache(maxsize=1024)
def _example_block(example: ReadingExample, labels: tuple[str, ...], wording: Wording) -> str:
    sentence, asked = _sentence, sentence_case(example.question, spaces=True)
    if wording == "release":  # captions that have a full stop are given another
        sentence = _released_example
        asked = asked if example.form == "set" else _upper_first(one_line(example.question, spaces=True))
    context = render_context(example.by_image, example.form, labels, sentence=sentence)
    return f"{context}\n===\nQ: {asked}\nA: {example.answer}"


@functools.lru_cache(maxsize=1024)
def _turn(
    captions: tuple[tuple[str, ...], ...], question: str, form: Form, labels: tuple[str, ...], statements: bool
) -> str:
    kind = question_kind(question, statements=statements)
    wanted = f" Answer {' or '.join(kind.choices)}." if kind.choices else _WANTED[kind.kind]
    if form == "image":
        shown = "\n".join(["Captions:", *(f"- {caption}" for caption in captions[0])])
    else:
        named = zip(_image_names(len(captions), labels), captions, strict=True)
        shown = "\n".join(f"{name}:\n" + "\n".join(f"- {caption}" for caption in group) for name, group in named)
    return f"{shown}\nQuestion: {sentence_case(question)}{wanted}"


def _image_names(count: int, labels: Sequence[str] | None) -> Sequence[str]:
    return labels if labels and len(labels) == count else [f"Image {number}" for number in range(1, count + 1)]


def _upper_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _release_sentence(caption: str) -> str:
    return _upper_first(caption if caption.endswith(".") else f"{caption.lower()}.")


def _released_set(caption: str) -> str:
    return _sentence(caption.lower())


def _released_example(caption: str) -> str:
    return f"{_upper_first(caption)}."
