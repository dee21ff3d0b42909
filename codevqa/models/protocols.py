"""The one seam to everything that costs a GPU or a network: small batch protocols.

Each method takes a sequence of requests and returns as many results, in order. A result must depend on its request
alone, beyond rounding: not on what else is in its batch, nor on what was asked before.

Engines call a model object from one thread at a time, however many engines use it, and the built-in back ends take
direct callers in the same order. So a model of your own needs no locks. Two objects that share a part, such as a
network, must say so: give each the attribute ``turn = ModelLock(part)``. Write ``with self.turn:`` in methods
that you also call yourself. ``turn = ModelLock()`` says that any number of threads may call at once.

A back end may say how many requests it likes best in one call, in an attribute ``batch``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from ..core.images import Picture
from ..core.trace import Method, methods_of
from .domain import Domain

Map: TypeAlias = "npt.NDArray[np.float32]"


@dataclass(frozen=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class GenerationRequest:
    """A text to continue, greedily."""

    prompt: str | tuple[Message, ...]
    """The text (completion form), or the turns (chat form)."""
    max_tokens: int
    stop: tuple[str, ...] = ()
    """Generation ends before the first of these; they are not part of the completion."""
    shared: int = 0
    """How many leading characters of a text prompt, or turns of a chat, other requests will share: worth computing once
    and keeping."""
    on_text: Callable[[str], None] | None = field(default=None, compare=False, repr=False)
    """Called from the model's thread with the text so far, as it is written; a back end that cannot tell never does.
    It must be quick and must not raise. The text begins anew where the model has to."""


@dataclass(frozen=True)
class Completion:
    """What a language model wrote."""

    text: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False
    """Whether the tokens were reckoned from the characters, since nobody counted them."""


class LanguageModel(Protocol):
    """Continues text.

    It may have more attributes. ``chat`` says whether it has a chat template, ``chat_only`` whether it cannot continue
    a text at all. ``cheap`` says whether several texts at once take little more time than one, as on a GPU: then
    several programs are written for a question. ``reading_shots`` is how many examples of reading it was trained with.
    ``joins`` says whether its method ``generate_joining(feed)`` works on the requests of a
    :class:`~codevqa.models.request_queue.RequestQueue` until none is left, begins new ones while it works on others,
    and hands out each completion when it has ended.
    ``context`` is how many tokens prompt and completion may take, and ``count(prompt)`` returns the tokens of a prompt,
    from any thread: with both, nothing is prepared that it could not read.
    """

    name: str
    """Model id as reported with every answer."""

    def generate(self, requests: Sequence[GenerationRequest]) -> Sequence[Completion]:
        """Continues each prompt greedily.

        Raises:
            ModelError: the model failed; ServerError when it is a server that is down or refuses.
        """
        ...


@dataclass(frozen=True)
class MatchRequest:
    """Where in a picture does a text look? Image-text matching with GradCAM."""

    picture: Picture
    text: str
    focus: str | None = None
    """A phrase whose tokens are averaged: where they last follow one another in ``text``, else all that both have; all
    of the text's where they have none in common, or there is no phrase."""


@dataclass(frozen=True, eq=False)
class Match:
    """What image-text matching says of one picture and one text."""

    relevance: Map
    """GradCAM relevance of each patch, shape (grid, grid), top row first, not negative, not normalised."""
    logit: float
    """ITM logit of "match" minus logit of "no match"."""


@dataclass(frozen=True)
class SimilarityRequest:
    """How alike are a picture and a text? Image-text contrast."""

    picture: Picture
    text: str


class Contrast(Protocol):
    """Compares pictures with texts, as CLIP, SigLIP and BLIP's ITC head do."""

    name: str

    def similarity(self, requests: Sequence[SimilarityRequest]) -> Sequence[float]:
        """Returns the contrastive score (cosine, -1..1) of each pair."""
        ...


class Matcher(Contrast, Protocol):
    """Compares pictures with texts, and says where in a picture a text looks (BLIP's ITM and ITC heads).

    It may have a method ``logits`` that takes what ``match`` takes and returns the ITM logits alone, for less work, and
    a method ``summaries`` that takes pictures and returns a vector for each, of what its vision tower makes of them.
    """

    grid: int
    """Patches along each side of a picture."""

    def match(self, requests: Sequence[MatchRequest]) -> Sequence[Match]:
        """Returns GradCAM relevance and the ITM logit of each pair."""
        ...


@dataclass(frozen=True)
class CaptionRequest:
    """One caption of some patches of a picture."""

    picture: Picture
    patches: tuple[int, ...] | None = None
    """Sorted indices of the patches shown to the captioner, row by row from the top left, without the CLS embedding;
    None shows the whole picture, CLS included."""
    seed: int | None = None
    """Seed of this one caption's sampling; None decodes greedily."""
    tokens: tuple[int, int] | None = None
    """Fewest and most tokens, those of the decoder's prompt included; None is the captioner's own."""


class Captioner(Protocol):
    """Describes pictures, or parts of them."""

    name: str
    grid: int

    def caption(self, requests: Sequence[CaptionRequest]) -> Sequence[str]:
        """Returns one caption a request, without the decoder's prompt ("a picture of")."""
        ...


@dataclass(frozen=True)
class Box:
    """A detected object, in pixels from the top left."""

    left: float
    top: float
    right: float
    bottom: float
    score: float


@dataclass(frozen=True)
class DetectRequest:
    """Find every object that a phrase names."""

    picture: Picture
    phrase: str


class Detector(Protocol):
    """Finds objects by name."""

    name: str

    def detect(self, requests: Sequence[DetectRequest]) -> Sequence[tuple[Box, ...]]:
        """Returns the boxes found for each request, best first."""
        ...


@dataclass(frozen=True)
class LookRequest:
    """What a vision-language model is asked about pictures."""

    pictures: tuple[Picture, ...]
    """One or more, in the order of the question's."""
    text: str
    """What is asked, after the pictures."""
    max_tokens: int = 16
    choices: tuple[str, ...] = ()
    """Answers among which one is wanted; none where any will do."""


@dataclass(frozen=True)
class Sight:
    """What a vision-language model said."""

    text: str
    chances: tuple[tuple[str, float], ...] = ()
    """Probability of each choice, in the order of the request's; none where the model does not tell."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    thinks: bool = False
    """Whether thoughts came before the text, as far as the model's server shows."""


class Eyes(Protocol):
    """A vision-language model: it looks at pictures itself, and answers.

    It may have ``context`` and ``count(request)``, as a :class:`LanguageModel` may.
    """

    name: str

    def look(self, requests: Sequence[LookRequest]) -> Sequence[Sight]:
        """Answers each request greedily.

        Raises:
            ModelError: the model failed; ServerError when it is a server that is down or refuses.
        """
        ...


@dataclass(frozen=True)
class Models:
    """The models one engine asks. What no model serves, no program is offered."""

    reader: LanguageModel
    """Answers questions from captions (the last step of PnP-VQA)."""
    matcher: Matcher | Contrast | None = None
    captioner: Captioner | None = None
    detector: Detector | None = None
    domain: Domain | None = None
    """What they know, where that is told."""
    eyes: Eyes | None = None
    """Answers questions about pictures itself, in the place of captions that are read."""

    @property
    def reads(self) -> bool:
        """Whether few-shot PnP-VQA can be done with them."""
        return self.captioner is not None and grounds(self.matcher)

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that they can do."""
        return methods_of(eyes=self.eyes is not None, reads=self.reads)


def grounds(matcher: object) -> TypeGuard[Matcher]:
    """Says whether a matcher tells where in a picture a text looks; one of CLIP's kind only compares."""
    return hasattr(matcher, "match")


def cheap(model: LanguageModel) -> bool:
    """Says whether several texts at once cost a language model little more than one."""
    return bool(getattr(model, "cheap", False))


def chats(model: LanguageModel, *, only: bool = False) -> bool:
    """Says whether a language model is one to talk with: it has a chat template, or its server has.

    Args:
        model: the model.
        only: whether it cannot continue a text either.
    """
    return bool(getattr(model, "chat_only" if only else "chat", False))


def prompt_text(prompt: str | tuple[Message, ...]) -> str:
    """Returns a prompt as text: itself, or each turn under its role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in prompt)


def cut_at_stop(text: str, stop: Sequence[str]) -> str:
    """Returns ``text`` up to the first place where any of the stop strings begins."""
    places = [place for place in (text.find(s) for s in stop if s) if place >= 0]
    return text[: min(places)] if places else text
