"""What a prompt set holds: annotated programs, reading examples, and how many of each a model is shown."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from ..core.question_kind import Wording
from ..core.trace import Form

_NonBlank: TypeAlias = Annotated[str, Field(pattern=r"\S")]
_Texts: TypeAlias = Annotated[tuple[_NonBlank, ...], Field(min_length=1)]
_Count: TypeAlias = Annotated[int, Field(ge=0)]


def _rising(span: tuple[int, int]) -> tuple[int, int]:
    if not 0 <= span[0] <= span[1]:
        raise ValueError("must be two whole numbers, the smaller first")
    return span


@dataclass(frozen=True)
class ProgramExample:
    """One annotated program."""

    id: _NonBlank
    question: _NonBlank
    program: _NonBlank
    """Source after the line that opens ``img`` or ``images``; leaves its result in ``answer``."""
    form: Form = "image"


@dataclass(frozen=True)
class ReadingExample:
    """One question answered from captions."""

    id: _NonBlank
    question: _NonBlank
    captions: _Texts | Annotated[tuple[tuple[_NonBlank, ...], ...], Field(min_length=1)]
    """Captions of the picture, or of each picture of a set."""
    answer: _NonBlank

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
        cut = tuple(group[:captions] for group in self.by_image)
        return dataclasses.replace(self, captions=cut if self.form == "set" else cut[0])


@dataclass(frozen=True)
class KnowledgeExample:
    """One question answered without a picture."""

    id: _NonBlank
    """Of the program that asks it: it is shown where that is."""
    question: _NonBlank
    answer: _NonBlank


@dataclass(frozen=True)
class PromptSet:
    """Everything a task shows the language model."""

    name: _NonBlank
    form: Form
    """What its questions are about: one image, or a set of them."""
    shots: _Count
    """Programs shown."""
    captions: _Count
    """Captions read for each picture."""
    caption_draws: _Count
    """Captions the paper's release draws for each picture before it reads the first ``captions``."""
    reading_shots: _Count
    """Reading examples shown."""
    primitives: tuple[_NonBlank, ...]
    """Names of the primitives the preamble lists, in order."""
    image_labels: tuple[_NonBlank, ...] | None = None
    """What the pictures of a set are called in reading prompts; None numbers them."""
    preamble: str = ""
    """Template: ``{api}`` stands for the API reference; one without it says itself what there is."""
    examples: tuple[ProgramExample, ...] = ()
    reading: tuple[ReadingExample, ...] = ()
    wording: Wording = "plain"
    """How the questions of its programs are put."""
    reading_wording: Wording = "plain"
    """How those of its reading examples are."""
    statements: bool = False
    """Whether its questions may be statements, to be judged by yes or no."""
    licence: str = ""
    about: str = ""
    knowledge: tuple[KnowledgeExample, ...] = ()
    """What ``knowledge_query`` shows the language model."""
    caption_tokens: Annotated[tuple[int, int], AfterValidator(_rising)] | None = None
    """Fewest and most tokens of a caption, the opening words' included; None leaves them to the captioner."""
    large_sets: bool = True
    """Whether what selects, groups and orders pictures is described, with examples, where a set is large."""
    instruction: str = ""
    """What a vision-language model is told of how to answer; empty where a word or phrase will do."""

    def knowledge_of(self, programs: Collection[str], *, only: bool = False) -> tuple[KnowledgeExample, ...]:
        """Returns the knowledge examples of the programs that were shown.

        Args:
            programs: ids of the programs.
            only: whether there are none where no program has one, as in the paper's release; else there are all.
        """
        matches = tuple(example for example in self.knowledge if example.id in programs)
        return matches if matches or only else self.knowledge

    def without(self, names: Collection[str]) -> PromptSet:
        """Returns a copy that neither lists these primitives nor shows programs that call one."""
        if not names:
            return self
        calls = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})\s*\(")
        return dataclasses.replace(
            self,
            primitives=tuple(name for name in self.primitives if name not in names),
            examples=tuple(example for example in self.examples if not calls.search(example.program)),
        )
