"""A vision-language model as what ``query`` sees with, and, asked once with all pictures, as a baseline.

It is asked for short answers as lmms-eval asks it, or a model that likes to talk answers in sentences, which no metric
takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..batching.model_services import ModelServices
from ..core.images import Picture
from ..core.question_kind import question_kind
from ..core.settings import QuerySettings
from ..core.trace import Evidence, Form, ImageRef
from ..core.wording import put
from ..models.base import LookRequest
from ..prompts import PromptSet
from .pnpvqa import Reading
from .reading import answer_in

SHORT = "Answer the question using a single word or phrase."
"""What follows a question where its prompt set names nothing else."""
_YES_NO = ("yes", "no")


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

    async def answer(
        self,
        pictures: Sequence[tuple[ImageRef, Picture]],
        question: str,
        form: Form,
        task: Form,
        *,
        about: str | None = None,
        witness: bool = False,
    ) -> Reading:
        """Asks one question about all of some pictures.

        Args:
            pictures: as they are shown, each with its number in the user's question.
            question: the question; a statement of the user's is asked as "Is it true that ...?".
            form: whether it is about one picture or a set.
            task: form of the user's question, whose prompt set says how answers are to be.
            about: the user's question, where ``question`` is a program's.
            witness: changes nothing: no other model is asked.

        Raises:
            ModelError: the model failed.
        """
        asked = question if about is not None else put(question, "asked", form)
        kind = question_kind(asked)
        choices = _YES_NO if kind.kind == "yes_no" else kind.choices if len(kind.choices) > 1 else ()
        text = f"{asked}\n{self._prompts[task].instruction or SHORT}"
        sight = await self._services.look(
            LookRequest(tuple(one for _, one in pictures), text, self._settings.max_tokens, choices)
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
        said = answer_in(sight.text, kind) if self._settings.fit else sight.text.strip().lower()
        return Reading(said, (seen,))
