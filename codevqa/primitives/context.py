"""What an implementation of a primitive is given: the question's pictures, the models, and a place for evidence."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..batching.model_services import ModelServices
from ..core.settings import Settings
from ..core.trace import Evidence, Form
from ..prompts import KnowledgeExample
from .eyes import Eyesight
from .kinds import Image
from .pnpvqa import PnPVQA


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
    evidence: list[Evidence] = field(default_factory=list)
    """What this call rests on; append to it, or call :meth:`record`."""

    def record(self, evidence: Evidence) -> None:
        """Keeps a piece of evidence for the trace."""
        self.evidence.append(evidence)
