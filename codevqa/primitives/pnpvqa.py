"""Few-shot Plug-and-Play VQA: the ``query`` primitive, and the baseline that answers without a program.

For each picture: image-text matching with GradCAM says where the question looks; captions are sampled from patches
drawn there; a language model reads the captions and answers (Tiong et al., "Plug-and-Play VQA", 2022; the few-shot
reading prompt is CodeVQA's, ACL 2023).
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..batching.model_services import ModelServices
from ..core.errors import ModelError
from ..core.images import Picture
from ..core.settings import QuerySettings
from ..core.text import sentence_case
from ..core.trace import Evidence, Form, ImageRef
from ..models.base import CaptionRequest, GenerationRequest, Map, MatchRequest
from ..models.retrieval import ExampleIndex, Retriever
from ..prompts import PromptSet, ReadingExample
from .patches import Drawing, Patches, draw_patches

__all__ = ["PnPVQA", "Reading", "draw_patches", "render_reading"]

INSTRUCTION = "Please answer the question according to the above context."


@dataclass(frozen=True)
class Reading:
    """An answer read off captions."""

    text: str
    evidence: Evidence


@dataclass(frozen=True)
class _Described:
    """One picture's captions, with where they came from."""

    captions: tuple[str, ...]
    patches: tuple[tuple[int, ...], ...]
    relevance: Map


def render_context(captions: Sequence[Sequence[str]], form: Form, labels: Sequence[str] | None = None) -> str:
    """Returns ``Context:`` with the captions of one picture, or one labelled line for each of a set."""
    lines = [" ".join(_sentence(caption) for caption in one) for one in captions]
    if form == "image":
        return f"Context: {lines[0]}".rstrip()
    names = labels if labels and len(labels) == len(lines) else [f"Image {n}" for n in range(1, len(lines) + 1)]
    return "\n".join(["Context:", *(f"{name}: {line}".rstrip() for name, line in zip(names, lines, strict=True))])


def render_reading(
    examples: Sequence[ReadingExample],
    captions: Sequence[Sequence[str]],
    question: str,
    form: Form,
    labels: Sequence[str] | None = None,
) -> str:
    """Returns the reading prompt: the instruction, each example with its answer, then the question, up to ``A:``.

    Args:
        examples: in-context examples of the same form as the question.
        captions: captions read, one sequence a picture.
        question: the question, in any case.
        form: ``image`` for one picture, ``set`` for several.
        labels: names of the pictures of a set, such as left and right; None numbers them.
    """
    blocks = [_example_block(example, form, tuple(labels or ())) for example in examples]
    blocks.append(f"{render_context(captions, form, labels)}\n===\nQ: {sentence_case(question)}\nA:")
    return f"{INSTRUCTION}\n===\n" + "\n\n===\n".join(blocks)


@functools.lru_cache(maxsize=1024)
def _example_block(example: ReadingExample, form: Form, labels: tuple[str, ...]) -> str:
    context = render_context(example.by_image, form, labels)
    return f"{context}\n===\nQ: {sentence_case(example.question)}\nA: {example.answer}"


class PnPVQA:
    """Answers a question about one picture or a set by captioning and reading.

    Args:
        services: the batched models.
        prompts: prompt set for each form; its reading bank and caption numbers are used.
        settings: numbers of the method.
        retriever: embeds questions to pick the nearest reading examples; None takes the first of the bank.
        seed: seed of patch and caption sampling. The same picture, question and seed always give the same captions.
    """

    def __init__(
        self,
        services: ModelServices,
        prompts: Mapping[Form, PromptSet],
        settings: QuerySettings,
        retriever: Retriever | None,
        seed: int,
    ) -> None:
        self._services = services
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
        self, pictures: Sequence[tuple[ImageRef, Picture]], question: str, form: Form, task: Form
    ) -> Reading:
        """Answers a question from sampled captions.

        Args:
            pictures: what the question is about, each with its number in the user's question.
            question: the question or statement.
            form: ``set`` lists every picture in the context, ``image`` reads the only one.
            task: form of the user's question, whose prompt set says how many captions are read.

        Raises:
            ModelError: a model failed, or every attempt to read came back empty.
        """
        prompts = self._prompts[task]
        wanted = self._settings.captions or prompts.captions
        draws = self._settings.max_draws or prompts.caption_draws
        if len(pictures) == 1:  # a task of its own would only cost
            described = [await self._describe(pictures[0][1], question, wanted, draws)]
        else:
            described = await asyncio.gather(*(self._describe(one, question, wanted, draws) for _, one in pictures))
        prompt = render_reading(
            self._reading_examples(question, form, prompts),
            [one.captions for one in described],
            question,
            form,
            prompts.image_labels,
        )
        text = await self._read(prompt)
        evidence = Evidence(
            kind="pnpvqa",
            images=tuple(ref for ref, _ in pictures),
            text=question,
            captions=tuple(one.captions for one in described),
            relevance=tuple(tuple(map(tuple, one.relevance.tolist())) for one in described),
            patches=tuple(one.patches for one in described),
            prompt=prompt,
            completion=text,
        )
        return Reading(text.strip().lower(), evidence)

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
            for request, caption in zip(requests, await self._services.caption.many(requests), strict=True):
                if caption and not any(caption in kept for kept in captions):
                    captions.append(caption)
                    patches.append(request.patches or ())
        return _Described(tuple(captions), tuple(patches), match.relevance)

    async def _read(self, prompt: str) -> str:
        """Asks the reader until it says something."""
        shared = prompt.rfind("\n\n===\nContext:")
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
            if not pool and form in self._prompts:  # a set's bank may hold none for its single pictures
                pool = [example for example in self._prompts[form].reading if example.form == form]
            self._pools[key] = pool
        return self._pools[key]

    def _reading_examples(self, question: str, form: Form, prompts: PromptSet) -> list[ReadingExample]:
        pool = self._pool(prompts, form)
        shots = prompts.reading_shots if self._settings.shots is None else self._settings.shots
        if self._retriever is None or self._settings.selection == "fixed" or len(pool) <= shots or shots == 0:
            return pool[:shots]
        key = (prompts.name, form)
        if key not in self._indexes:
            self._indexes[key] = ExampleIndex(self._retriever, [example.question for example in pool])
        return [pool[place] for place in self._indexes[key].nearest(question, shots)]


def _sentence(caption: str) -> str:
    text = caption.strip()
    text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else text + "."


def _seeds(places: Iterable[int], *parts: object) -> list[int]:
    """Returns a seed for each place that depends on it, on every part and on nothing else."""
    common = hashlib.sha256("".join(f"{part}\x1f" for part in parts).encode())
    seeds = []
    for place in places:
        hashed = common.copy()
        hashed.update(b"%d" % place)
        seeds.append(int.from_bytes(hashed.digest()[:8], "big") >> 1)
    return seeds
