"""What can be said of a question before any model is asked: whether it is one, and whether the models can know."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from ..batching.call_cache import Usage
from ..batching.model_services import ModelServices
from ..core.answer import Answer
from ..core.answer_words import DONT_KNOW
from ..core.errors import QuestionError
from ..core.images import Picture, load_pictures
from ..core.settings import Settings
from ..core.text import spaced
from ..core.trace import Cost, DomainWarning, Trace
from ..models.domain import Domain
from ..presets.assembly import domain_of, names_of
from ..presets.configuration import Configuration
from .request import Request


def checked_question(question: str, settings: Settings) -> str:
    """Returns a question on one line; several spaces stay several only where prompts are to be the release's.

    Raises:
        QuestionError: it is empty, too long, or no text that can be written down.
    """
    if not isinstance(question, str):
        raise QuestionError(f"A question is a text, not {type(question).__name__}.", hint="Give one in quotes.")
    as_it_is = "release" in (settings.writer.wording, settings.query.wording)
    question = spaced(question) if as_it_is else " ".join(question.split())
    if not question.isascii() and any("\ud800" <= letter <= "\udfff" for letter in question):
        raise QuestionError("The question contains half a surrogate pair, which no text has.", hint="Type it again.")
    if not question:
        raise QuestionError("The question is empty.", hint="Ask something about the picture.")
    if len(question) > settings.max_question:
        limit = f"The limit is {settings.max_question:,}."
        raise QuestionError(f"The question has {len(question):,} characters.", hint=limit)
    return question


def declined(configuration: Configuration, request: Request) -> Answer | None:
    """Answers a question that lies outside of what a configuration's models know; loads none of them.

    Returns:
        The answer, or None where the models are to be asked.

    Raises:
        InputError: the question or a picture cannot be used.
    """
    started = time.perf_counter()
    domain = domain_of(configuration) if configuration.settings.strict_domain else None
    if domain is None:
        return None
    question = checked_question(request.question, configuration.settings)
    pictures = load_pictures(request.images)
    warnings = domain.check(pictures, question)
    if not unanswerable(warnings, len(pictures)):
        return None
    return Answer(
        question,
        DONT_KNOW,
        None,
        Trace(),
        method=request.method,
        seconds=time.perf_counter() - started,
        models=names_of(configuration),
        cost=Cost(),
        warnings=warnings,
        sources=tuple(pictures),
    )


async def outside(
    domain: Domain, services: ModelServices, pictures: Sequence[Picture], words: str, settings: Settings
) -> tuple[DomainWarning, ...]:
    """Says what of a question lies outside of what the models know; the matcher looks where nothing else has told.

    It looks at no large set, in which few pictures are looked at otherwise.
    """
    warnings = await asyncio.to_thread(domain.check, pictures, words)
    looks = domain.seen is not None and services.summarises and len(pictures) <= settings.sets.large
    if not looks or unanswerable(warnings, len(pictures)):
        return warnings
    with Usage().counting():  # as with the pictures' statistics, nobody is charged
        summaries = await services.summary.many(pictures)
    others = [number for number, summary in enumerate(summaries, 1) if domain.is_of_another_kind(summary)]
    return await asyncio.to_thread(domain.check, pictures, words, others) if others else warnings


def unanswerable(warnings: tuple[DomainWarning, ...], count: int) -> bool:
    """Whether warnings say that the models cannot know the answer; a word spelt wrongly does not.

    Nor do a few of the pictures, less than half: these are left out, and the warning names them.

    Args:
        warnings: what lies outside.
        count: how many pictures there are.
    """
    grave = [warning for warning in warnings if warning.kind != "spelling"]
    return any(warning.kind == "words" or 2 * len(warning.images) >= count for warning in grave)
