"""Few-shot Plug-and-Play VQA: the ``query`` primitive, and the baseline that answers without a program.

For each picture: image-text matching with GradCAM says where the question looks; captions are sampled from patches
drawn there; a language model reads the captions and answers (Tiong et al., "Plug-and-Play VQA", 2022; the few-shot
reading prompt is CodeVQA's, ACL 2023).
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..batching.model_services import ModelServices
from ..core.errors import ModelError
from ..core.images import Picture
from ..core.question_kind import question_kind
from ..core.settings import QuerySettings
from ..core.text import caption_line
from ..core.trace import Evidence, Form, ImageRef
from ..models.base import CaptionRequest, GenerationRequest, Map, Match, MatchRequest, Message, prompt_text
from ..models.retrieval import ExampleIndex, Retriever
from ..prompts import PromptSet, ReadingExample
from .patches import Drawing, Patches, draw_patches
from .reading import INSTRUCTION, answer_in, render_context, render_reading, render_reading_chat
from .witness import Descriptions, described, stated_number

__all__ = ["INSTRUCTION", "PnPVQA", "Reading", "draw_patches", "render_context", "render_reading"]


@dataclass(frozen=True)
class Reading:
    """An answer, and what it rests on: captions that were read, and what image-text matching says."""

    text: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class _Described:
    """One picture's captions, with where they came from."""

    captions: tuple[str, ...]
    patches: tuple[tuple[int, ...], ...]
    relevance: Map


class PnPVQA:
    """Answers a question about one picture or a set by captioning and reading.

    Args:
        services: the batched models.
        prompts: prompt set for each form; its reading bank and caption numbers are used.
        settings: numbers of the method.
        retriever: embeds questions to pick the nearest reading examples; None takes the first of the bank.
        seed: seed of patch and caption sampling. The same picture, question and seed always give the same captions.
        chat: whether the reader can only be talked with; decides the form of prompts where the settings don't.
    """

    def __init__(
        self,
        services: ModelServices,
        prompts: Mapping[Form, PromptSet],
        settings: QuerySettings,
        retriever: Retriever | None,
        seed: int,
        *,
        chat: bool = False,
    ) -> None:
        self._services = services
        self._chat = chat if settings.form == "auto" else settings.form == "chat"
        self._prompts = prompts
        self._settings = settings
        self._retriever = retriever
        self._seed = seed
        self._indexes: dict[tuple[str, Form], ExampleIndex] = {}
        self._pools: dict[tuple[str, Form], list[ReadingExample]] = {}
        self._drawing = Drawing()

    def with_seed(self, seed: int) -> PnPVQA:
        """Returns the same that samples with another seed; the embedded reading banks are shared."""
        other = copy.copy(self)
        other._seed = seed
        return other

    async def answer(
        self,
        pictures: Sequence[tuple[ImageRef, Picture]],
        question: str,
        form: Form,
        task: Form,
        *,
        about: str = "",
        witness: bool = False,
    ) -> Reading:
        """Answers a question from sampled captions, or where it is surer from image-text matching.

        Args:
            pictures: what the question is about, each with its number in the user's question.
            question: the question or statement.
            form: ``set`` lists every picture in the context, ``image`` reads the only one.
            task: form of the user's question, whose prompt set says how many captions are read.
            about: the user's question, where ``question`` is a part of it.
            witness: whether image-text matching may answer, if the settings have it; the baseline only reads.

        Raises:
            ModelError: a model failed, or every attempt to read came back empty.
        """
        kind = question_kind(question)
        alone = witness and form == "image"
        looks: Sequence[_Described] = ()
        if alone and self._settings.stated and kind.kind == "number":
            looks = await self._look(pictures, question, task)
            number = stated_number(question, looks[0].captions)
            if number:
                return Reading(number, (_evidence("stated", pictures, question, looks),))
        asked = described(question) if alone and self._settings.witness else Descriptions()
        seen = await self._match(pictures[0], asked) if asked.texts else None
        if seen is not None:
            sure = asked.verdict(seen.scores, self._settings.doubt)
            if sure:
                return Reading(sure, (seen,))
        looks = looks or await self._look(pictures, question, task)
        prompt = await self._prompt(question, [one.captions for one in looks], form, self._prompts[task], about)
        text = await self._read(prompt)
        read = replace(_evidence("pnpvqa", pictures, question, looks), prompt=prompt_text(prompt), completion=text)
        answer = answer_in(text, kind) if self._settings.fit else text.strip().lower()
        if self._settings.fit and seen is not None and asked.choices and answer not in asked.choices:
            answer = max(zip(seen.scores, asked.choices, strict=True))[1]  # unsure, but one of those that were named
        return Reading(answer, (read,) if seen is None else (seen, read))

    async def _look(
        self, pictures: Sequence[tuple[ImageRef, Picture]], question: str, task: Form
    ) -> Sequence[_Described]:
        """Describes every picture where the question looks."""
        prompts = self._prompts[task]
        wanted = self._settings.captions or prompts.captions
        draws = self._settings.max_draws or prompts.caption_draws
        if len(pictures) == 1:  # a task of its own would only cost
            return [await self._describe(pictures[0][1], question, wanted, draws)]
        return await asyncio.gather(*(self._describe(one, question, wanted, draws) for _, one in pictures))

    async def _match(self, picture: tuple[ImageRef, Picture], asked: Descriptions) -> Evidence:
        """Returns what image-text matching says of descriptions, up to those that suffice."""
        matches: list[Match] = []
        scores: tuple[float, ...] = ()
        for text in asked.texts:
            matches.append(await self._services.match(MatchRequest(picture[1], text)))
            scores = tuple(match.logit for match in matches)
            if asked.suffice(scores, self._settings.doubt):
                break
        relevance = (tuple(map(tuple, matches[0].relevance.tolist())),)
        return Evidence("itm", (picture[0],), "; ".join(asked.texts[: len(scores)]), relevance=relevance, scores=scores)

    async def _prompt(
        self, question: str, captions: Sequence[Sequence[str]], form: Form, prompts: PromptSet, about: str
    ) -> str | tuple[Message, ...]:
        nearest_to = about if about and self._settings.selection == "question" else question
        examples = await self._reading_examples(nearest_to, form, prompts)
        render = render_reading_chat if self._chat else render_reading
        return render(examples, captions, question, form, prompts.image_labels)

    async def _describe(self, picture: Picture, question: str, wanted: int, draws: int) -> _Described:
        """Samples captions where the question looks, until ``wanted`` differ or ``draws`` are drawn.

        Keeping the first few of a hundred gives the same captions in distribution: draws are independent, and whether
        one is kept depends only on those before it.
        """
        text = question.strip().rstrip("?").strip()
        match = await self._services.match(MatchRequest(picture, text))
        chances = Patches(match.relevance, self._settings.patches)
        captions: list[str] = []
        patches: list[tuple[int, ...]] = []
        drawn = 0
        while len(captions) < wanted and drawn < draws:
            count = min(wanted - len(captions), draws - drawn)
            seeds = _seeds(range(drawn, drawn + count), self._seed, picture.key, text)
            subsets = await self._drawing(chances, seeds)
            requests = [CaptionRequest(picture, *pair) for pair in zip(subsets, seeds, strict=True)]
            drawn += count
            captioned = map(caption_line, await self._services.caption.many(requests))
            for request, caption in zip(requests, captioned, strict=True):
                if caption and not any(caption in kept for kept in captions):
                    captions.append(caption)
                    patches.append(request.patches or ())
        return _Described(tuple(captions), tuple(patches), match.relevance)

    async def _read(self, prompt: str | tuple[Message, ...]) -> str:
        """Asks the reader until it says something."""
        shared = prompt.rfind("\n\n===\nContext:") if isinstance(prompt, str) else 0
        request = GenerationRequest(prompt, self._settings.max_tokens, ("\n",), max(shared, 0))
        for _ in range(self._settings.attempts):
            completion = await self._services.read(request)
            if completion.text.strip():
                return completion.text
        raise ModelError(f"The reading model gave an empty answer {self._settings.attempts} times.")

    def _pool(self, prompts: PromptSet, form: Form) -> list[ReadingExample]:
        key = (prompts.name, form)
        if key not in self._pools:
            pool = [example for example in prompts.reading if example.form == form]
            if (not pool or self._settings.selection == "kind") and self._prompts.get(form, prompts) is not prompts:
                # A set's bank may hold few for its single pictures.
                pool += [example for example in self._prompts[form].reading if example.form == form]
            self._pools[key] = pool
        return self._pools[key]

    async def _reading_examples(self, question: str, form: Form, prompts: PromptSet) -> list[ReadingExample]:
        pool = self._pool(prompts, form)
        shots = prompts.reading_shots if self._settings.shots is None else self._settings.shots
        if self._settings.selection == "kind":
            wanted = question_kind(question).kind
            like = [example for example in pool if question_kind(example.question).kind == wanted]
            # The last: banks begin with what suits any question, and grow by what one kind was in want of.
            return (like or pool)[-shots:] if shots else []
        if self._retriever is None or self._settings.selection == "fixed" or len(pool) <= shots or shots == 0:
            return pool[:shots]
        key = (prompts.name, form)
        if key not in self._indexes:
            self._indexes[key] = ExampleIndex(self._retriever, [example.question for example in pool])
        await self._indexes[key].prepare(question)
        return [pool[place] for place in self._indexes[key].nearest(question, shots)]


def _evidence(
    kind: str, pictures: Sequence[tuple[ImageRef, Picture]], question: str, looks: Sequence[_Described]
) -> Evidence:
    return Evidence(
        kind=kind,
        images=tuple(ref for ref, _ in pictures),
        text=question,
        captions=tuple(one.captions for one in looks),
        relevance=tuple(tuple(map(tuple, one.relevance.tolist())) for one in looks),
        patches=tuple(one.patches for one in looks),
    )


def _seeds(places: Iterable[int], *parts: object) -> list[int]:
    """Returns a seed for each place that depends on it, on every part and on nothing else."""
    common = hashlib.sha256("".join(f"{part}\x1f" for part in parts).encode())
    seeds = []
    for place in places:
        hashed = common.copy()
        hashed.update(b"%d" % place)
        seeds.append(int.from_bytes(hashed.digest()[:8], "big") >> 1)
    return seeds
