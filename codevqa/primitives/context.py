"""What an implementation of a primitive is given: the question's pictures, the models, and a place for evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ..batching.model_services import ModelServices
from ..core.settings import Settings
from ..core.trace import Evidence, Form
from ..prompts import KnowledgeExample
from .eyes import Eyesight
from .kinds import Image
from .parts import Reading
from .pnpvqa import PnPVQA

Corrections: TypeAlias = Mapping[tuple[str, str], bool]
"""Yes or no, by a picture's key and what was asked about it."""


@dataclass(frozen=True)
class CallContext:
    """One call's surroundings. A primitive takes it as its first parameter, ``context``."""

    question: str
    """The user's question."""
    form: Form
    """Whether the user asked about one picture or a set."""
    images: tuple[Image, ...]
    """The question's pictures, in order."""
    services: ModelServices
    """The models, batched over every program now running."""
    pnpvqa: PnPVQA
    settings: Settings
    eyes: Eyesight | None = None
    """A vision-language model, where there is one: it answers in the place of captions that are read."""
    knowledge: tuple[KnowledgeExample, ...] = ()
    """What ``knowledge_query`` is answered after."""
    corrections: Corrections = field(default_factory=dict)
    """What people said of pictures; see :meth:`find_correction`."""
    outside: frozenset[int] = frozenset()
    """Numbers of the pictures that look unlike what the models know: nothing is asked of them where many are."""
    evidence: list[Evidence] = field(default_factory=list)
    """What this call rests on; append to it, or call :meth:`record`."""

    def record(self, evidence: Evidence) -> None:
        """Keeps a piece of evidence for the trace."""
        self.evidence.append(evidence)

    def find_correction(self, img: Image, question: str) -> Reading | None:
        """Returns what a person said of a picture, in place of what a model would; None where nobody did."""
        correction = self.corrections.get((img.picture.key, question))
        if correction is None:
            return None
        basis = Evidence("corrected", (img.ref,), question, scores=(float(correction),))
        return Reading("yes" if correction else "no", (basis,))
