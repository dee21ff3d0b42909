"""How values, calls and times read on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ..core.answer import Answer
from ..core.images import Picture
from ..core.trace import ImageRef, TraceValue

MOST = 200
"""Characters of a value before the rest is cut off."""

MOST_LETTERS = 60
"""Letters of a file name: in UTF-8 they have four bytes at most, and file systems take 255."""
_SHIPPED: Mapping[str, str] = {"lm": "language model", "vlm": "vision-language model"}
"""What shipped models are called, where the name of their folder is short."""
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufeff]")


def clean(text: str) -> str:
    """Replaces characters that HTML cannot hold, that show nothing, or that reorder the text around them."""
    return _UNSEEN.sub("\ufffd", text.replace("\r\n", "\n"))


def value_words(value: TraceValue, most: int = MOST) -> str:
    """Returns a value as a program would write it, pictures as ``image 1``, cut to ``most`` characters."""
    text = _value(value)
    return text if len(text) <= most else f"{text[: max(1, most - 1)].rstrip()}…"


def call_words(name: str, arguments: Mapping[str, TraceValue], most: int = MOST) -> str:
    """Returns a call as it reads in a program, such as ``query(image 1, 'What color is it?')``."""
    return f"{name}({', '.join(value_words(value, most) for value in arguments.values())})"


def pictures_name(pictures: Sequence[Picture]) -> str:
    """Returns what to call the pictures of a question together, such as ``garden and 2 more``; empty without a name."""
    name = next((Path(picture.name).stem for picture in pictures if picture.name), "")
    return f"{name} and {len(pictures) - 1:,} more" if name and len(pictures) > 1 else name


def page_name(question: str, pictures: Sequence[Picture]) -> str:
    """Returns a file name for the page of an answer, such as ``garden-what-color-is-the-house.html``."""
    words = re.sub(r"[\W_]+", "-", f"{pictures_name(pictures)} {question}".lower()).strip("-")
    return f"{words[:MOST_LETTERS].rstrip('-') or 'answer'}.html"


def images_in(value: TraceValue) -> Iterator[int]:
    """Yields the number of every picture inside a value."""
    if isinstance(value, ImageRef):
        yield value.index
    elif isinstance(value, list | tuple):
        for item in value:
            yield from images_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from images_in(item)


def images_of(answer: Answer) -> Iterator[int]:
    """Yields the number of every picture that an answer speaks of."""
    calls = answer.trace.calls
    for evidence in (*answer.trace.baseline, *(entry for call in calls for entry in call.evidence)):
        yield from images_in(evidence.images)
    for call in calls:
        yield from images_in([call.value, call.arguments])


def format_number(value: float) -> str:
    """Returns a number with as many digits as a reader needs."""
    return f"{value:.4g}" if math.isfinite(value) else str(value)


def seconds(value: float) -> str:
    """Returns a time: ``24 ms`` or ``1.38 s``."""
    if value < 0.001:
        return "under 1 ms"
    return f"{value * 1e3:.0f} ms" if value < 0.9995 else f"{value:,.2f} s"


def chance(value: float) -> str:
    """Returns a probability in percent, without claiming more than a model can know."""
    if not math.isfinite(value):
        return str(value)
    return "over 99 %" if value > 0.99 else "under 1 %" if value < 0.01 else f"{value:.0%}".replace("%", " %")


def agreement(answer: Answer, without: Answer) -> Literal["agrees", "disagrees", ""]:
    """Says whether the answer without a program is the same one, whatever its case.

    Empty where that says nothing: there is no answer, or it is itself one without a program.
    """
    if answer.error or answer.fallback or answer.program is None or not answer.text:
        return ""
    first, two = (" ".join(each.text.casefold().split()).rstrip(".") for each in (answer, without))
    return "agrees" if first == two else "disagrees"


def _value(value: TraceValue) -> str:
    if isinstance(value, ImageRef):
        return str(value)
    if isinstance(value, list | tuple):
        if len(value) > 1 and all(isinstance(item, ImageRef) and not item.part for item in value):
            return _run_of_images([item.index for item in value])
        inner = ", ".join(map(_value, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_value(key)}: {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g}"
    return repr(value)


def _run_of_images(numbers: list[int]) -> str:
    if numbers == list(range(numbers[0], numbers[0] + len(numbers))):
        return f"images {numbers[0]} to {numbers[-1]}" if len(numbers) > 2 else f"images {numbers[0]}, {numbers[1]}"
    return "images " + ", ".join(map(str, numbers))


def model_name(model: str) -> str:
    """Returns the name that people know a model by: ``mini language model`` for one that is shipped here."""
    shipped = model.removeprefix("@mini/weights/")
    if shipped != model:
        return f"mini {_SHIPPED.get(shipped, shipped)} (part of CodeVQA)"
    parts = Path(model).parts
    return parts[-1] if len(parts) > 2 or Path(model).is_absolute() else model
