"""Between what a program computes and what an answer holds."""

from __future__ import annotations

from ..core.errors import ProgramAnswerError
from ..core.question_kind import QuestionKind
from ..core.trace import ImageRef, Plain
from ..primitives.kinds import Image

__all__ = ["answer_text", "fitted_answer", "plain"]


def plain(value: object) -> Plain:
    """Returns a value with every image replaced by a reference to it."""
    if isinstance(value, Image):
        return ImageRef(value.index)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def answer_text(value: object) -> str:
    """Returns the value a program left in ``answer`` as text.

    True and False become yes and no, a whole number loses its ``.0``, an image is named by its number, a list is
    joined by commas.

    Raises:
        ProgramAnswerError: there is nothing to say, such as None or an empty string.
    """
    text = _text(value)
    if not text:
        shown = "an empty list" if value in ([], ()) else repr(value)
        raise ProgramAnswerError(f"the program left {shown} in answer, which says nothing")
    return text


def fitted_answer(text: str, kind: QuestionKind) -> str:
    """Returns an answer in the words of the kind that its question wants.

    Raises:
        ProgramAnswerError: it is of another kind.
    """
    fitted = kind.fitted(text)
    wrong = kind.misfit(fitted)
    if wrong:
        raise ProgramAnswerError(wrong)
    return fitted


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Image):
        return str(ImageRef(value.index))
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(filter(None, map(_text, value)))
    if isinstance(value, dict):
        return ", ".join(f"{_text(key)}: {_text(item)}" for key, item in value.items())
    return str(value).strip()
