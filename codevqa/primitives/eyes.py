"""A vision-language model as what ``query`` sees with, and, asked once with all pictures, as a baseline.

It is asked for short answers as lmms-eval asks it, or a model that likes to talk answers in sentences, which no metric
takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ..batching.model_services import ModelServices
from ..core.errors import PictureLimitError
from ..core.images import Picture
from ..core.question_kind import question_kind, word_question
from ..core.settings import QuerySettings
from ..core.trace import Evidence, Form
from ..models.protocols import LookRequest
from ..prompts import PromptSet
from .parts import Numbered, Reading, context_of, read_in_parts, read_reply

SHORT = "Answer the question using a single word or phrase."
"""What follows a question where its prompt set names nothing else."""
YES_NO = ("yes", "no")
_SIZES = 16
"""Sizes of pictures whose tokens are counted: of others the most that one of these takes."""


class Eyesight:
    """Has a vision-language model answer questions about pictures. Asked as :class:`~.pnpvqa.PnPVQA` is.

    Args:
        services: the batched models.
        prompts: prompt set for each form, which may say how answers are to be.
        settings: length of an answer, and whether it is put in the words of its kind.
    """

    def __init__(self, services: ModelServices, prompts: Mapping[Form, PromptSet], settings: QuerySettings) -> None:
        self._services = services
        self._prompts = prompts
        self._settings = settings
        self._tokens: dict[tuple[int, int], int] = {}
        """What a further picture of a size takes."""

    async def answer(
        self,
        pictures: Numbered,
        question: str,
        form: Form,
        task: Form,
        *,
        about: str | None = None,
        witness: bool = False,
        parts: int | None = None,
    ) -> Reading:
        """Asks one question about all of some pictures, in parts where the model has no room (:mod:`.parts`).

        The arguments are those of :meth:`.PnPVQA.answer`; ``witness`` changes nothing, since no other model is asked. A
        statement of the user's is asked as "Is it true that ...?".

        Raises:
            PictureLimitError: a user's whole question is about more than ``query.pictures``.
            PromptTooLongError: the model has no room for pictures that cannot be shown in parts.
            ModelError: the model failed.
        """
        stated = about is None and self._prompts[task].statements
        asked = word_question(question, "asked", form) if stated else question
        kind = question_kind(asked)
        choices = YES_NO if kind.kind == "yes_no" else kind.choices if len(kind.choices) > 1 else ()
        text = f"{asked}\n{self._prompts[task].instruction or SHORT}"
        fit = self._limit(len(pictures), whole=about is None and parts is None)
        fit = min(fit, await self._fit([picture for _, picture in pictures], text))
        if fit < len(pictures):
            return await read_in_parts(
                pictures,
                question,
                fit,
                lambda part: self.answer(part, question, form, task, about=about),
                name=self._services.eyes.name if self._services.eyes else "",
                parts=parts,
            )
        sight = await self._services.look(
            LookRequest(
                tuple(picture for _, picture in pictures),
                text,
                self._settings.max_tokens,
                choices if self._settings.probabilities else (),
            )
        )
        seen = Evidence(
            kind="eyes",
            images=tuple(ref for ref, _ in pictures),
            text=asked,
            choices=tuple(choice for choice, _ in sight.chances),
            scores=tuple(chance for _, chance in sight.chances),
            prompt=text,
            completion=sight.text,
        )
        if not self._settings.fit:
            return Reading(sight.text.strip().lower(), (seen,))
        answer, unread = read_reply(sight.text, kind, sight.chances if choices == YES_NO else ())
        return Reading(answer, (seen,), unread)

    def _limit(self, count: int, *, whole: bool) -> int:
        """Returns how many of so many pictures may be shown at once; a user's whole question is asked once, or not."""
        limit = self._settings.pictures
        if limit is None or count <= limit or (whole and self._settings.over_limit):
            return count
        if whole:
            shown = f"{count:,} {'pictures' if count > 1 else 'picture'}"
            raise PictureLimitError(
                f"This model was seen to answer about {limit:,} at once, not {shown}.",
                hint="Ask all the same with --force (query.over_limit), or use the method codevqa.",
            )
        return max(1, limit)

    async def _fit(self, pictures: Sequence[Picture], text: str) -> int:
        """Returns how many of some pictures the model has room for, about; all where it does not tell."""
        eyes: Any = self._services.eyes
        context, count = context_of(eyes), len(pictures)
        if count < 2 or context is None:
            return count

        async def length(*shown: Picture) -> int:
            return int(await asyncio.to_thread(eyes.count, LookRequest(shown, text)))

        sizes = {picture.size: picture for picture in pictures}
        largest = sorted(sizes, key=lambda size: -size[0] * size[1])[:_SIZES]
        for size in largest:
            if size not in self._tokens:
                self._tokens[size] = await length(sizes[size], sizes[size]) - await length(sizes[size])
        most = max(self._tokens[size] for size in largest)
        room = context - self._settings.max_tokens - await length(sizes[largest[0]]) + self._tokens[largest[0]]
        whole = sum(self._tokens.get(picture.size, most) for picture in pictures)
        return count if whole <= room else max(0, min(count - 1, room // max(most, 1)))
