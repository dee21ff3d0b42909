"""What a prompt set holds: annotated programs, reading examples, and how many of each a model is shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from ..core.trace import Form

__all__ = ["Example", "PromptSet", "ReadingExample"]


@dataclass(frozen=True)
class Example:
    """One annotated program."""

    id: str
    question: str
    program: str
    """Source after the line that opens ``img`` or ``images``; leaves its result in ``answer``."""
    form: Form = "image"


@dataclass(frozen=True)
class ReadingExample:
    """One question answered from captions."""

    id: str
    question: str
    captions: tuple[str, ...] | tuple[tuple[str, ...], ...]
    """Captions of the picture, or of each picture of a set."""
    answer: str

    @property
    def form(self) -> Form:
        """``set`` where captions are listed for each picture, else ``image``."""
        return "set" if self.captions and not isinstance(self.captions[0], str) else "image"

    @property
    def by_image(self) -> tuple[tuple[str, ...], ...]:
        """The captions as one tuple a picture, whatever the form."""
        if any(isinstance(item, str) for item in self.captions):
            return (tuple(item for item in self.captions if isinstance(item, str)),)
        return tuple(item for item in self.captions if isinstance(item, tuple))

    def limit(self, captions: int) -> ReadingExample:
        """Returns the example with at most that many captions a picture."""
        cut = tuple(one[:captions] for one in self.by_image)
        return dataclasses.replace(self, captions=cut if self.form == "set" else cut[0])


@dataclass(frozen=True)
class PromptSet:
    """Everything a task shows the language model."""

    name: str
    form: Form
    """What its questions are about: one image, or a set of them."""
    shots: int
    """Programs shown."""
    captions: int
    """Captions read for each picture."""
    caption_draws: int
    """Captions the paper's release draws for each picture before it reads the first ``captions``."""
    reading_shots: int
    """Reading examples shown."""
    primitives: tuple[str, ...]
    """Names of the primitives the preamble lists, in order."""
    image_labels: tuple[str, ...] | None
    """What the pictures of a set are called in reading prompts; None numbers them."""
    preamble: str
    """Template: ``{api}`` stands for the API reference."""
    examples: tuple[Example, ...]
    reading: tuple[ReadingExample, ...]
    licence: str = ""
    about: str = ""

    def with_bank(
        self, examples: Iterable[Example] | None = None, reading: Iterable[ReadingExample] | None = None
    ) -> PromptSet:
        """Returns a copy with other examples, e.g. those of :func:`load_examples` and :func:`load_reading`.

        Args:
            examples: annotated programs; None keeps the set's own.
            reading: reading examples; None keeps the set's own. Captions beyond the set's number are dropped.
        """
        return dataclasses.replace(
            self,
            examples=self.examples if examples is None else tuple(examples),
            reading=self.reading if reading is None else tuple(item.limit(self.captions) for item in reading),
        )
