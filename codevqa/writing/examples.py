"""Which in-context examples a question is shown: the nearest in words, structure or both; or fixed or random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..core.errors import InputError
from ..core.question_kind import word_question
from ..core.settings import WriterSettings
from ..core.trace import Form
from ..models.retrieval import Embed, ExampleIndex, Retriever
from ..prompts import ProgramExample
from .offer import Offer
from .prompt_forms import skeleton

_VIEWS: Mapping[str, Sequence[Callable[[str], str]]] = {
    "words": (str,),
    "structure": (skeleton,),
    "both": (str, skeleton),
}
"""What of a question is compared, by the way of retrieval."""


class ExampleChoice:
    """Chooses in-context examples.

    Args:
        offer: has the banks of examples.
        retriever: embeds questions for the nearest examples; None is enough for random or fixed ones.
        settings: way of choosing, and how many.
        seed: of random choice, mixed with the question.
    """

    def __init__(self, offer: Offer, retriever: Retriever | None, settings: WriterSettings, seed: int) -> None:
        self._offer, self._retriever, self.settings, self.seed = offer, retriever, settings, seed
        self._indexes: dict[Form, ExampleIndex] = {}

    def select(self, question: str, form: Form, shots: int | None = None, draft: int = 0) -> list[ProgramExample]:
        """Returns the in-context examples for a question, in the order they are shown.

        Args:
            question: what they are to be like.
            form: of which form they are.
            shots: how many; None takes the settings' number, or the prompt set's.
            draft: 0 is the nearest; each other number a subset of twice as many, drawn for the question.

        Raises:
            InputError: there are not so many.
        """
        prompts = self._offer.prompts_for(form)
        pool = self.bank(form)
        if shots is None:
            shots = min(prompts.shots if self.settings.shots is None else self.settings.shots, len(pool))
        elif not 0 <= shots <= len(pool):
            kind = "one image" if form == "image" else "a set of images"
            raise InputError(
                f"{shots} examples were asked for; the prompt set {prompts.name} has {len(pool)} about {kind}.",
                hint=f"Choose 0 to {len(pool)}.",
            )
        looked_at = min(2 * shots, len(pool)) if draft else shots
        index = self._index(form)
        if index is not None:
            near = [pool[place] for place in index.nearest(self.word(question, form), looked_at)]
        elif self.settings.selection == "random":
            near = random.Random(f"{self.seed}:{question}").sample(pool, looked_at)
        else:
            near = pool[:looked_at]
        if not draft:
            return near
        places = random.Random(f"{self.seed}:{draft}:{question}").sample(range(looked_at), shots)
        return [near[place] for place in sorted(places)]

    def word(self, question: str, form: Form) -> str:
        """Returns a question as models are shown it."""
        return word_question(question, self.settings.wording or self._offer.prompts_for(form).wording, form)

    def bank(self, form: Form) -> list[ProgramExample]:
        """Returns all examples of a form."""
        return [example for example in self._offer.prompts_for(form).examples if example.form == form]

    def _index(self, form: Form) -> ExampleIndex | None:
        """Returns what finds the nearest examples of a form; None where they are not chosen so."""
        if self.settings.selection != "nearest" or self._retriever is None:
            return None
        if form not in self._indexes:
            questions = [example.question for example in self.bank(form)]
            if not questions:
                return None
            self._indexes[form] = ExampleIndex(self._retriever, questions, _VIEWS[self.settings.retrieval])
        return self._indexes[form]

    def sentences(self, questions: Iterable[str], form: Form) -> list[str]:
        """Returns what is embedded to choose the examples of questions."""
        index = self._index(form)
        if index is None:
            return []
        return [sentence for question in questions for sentence in index.sentences(self.word(question, form))]

    async def prepare(self, question: str, form: Form, embed: Embed) -> None:
        """Embeds a question together with others: its examples are chosen at once then.

        Raises:
            ModelError: the retriever failed.
        """
        index = self._index(form)
        if index is not None:
            await index.prepare(self.word(question, form), embed)
