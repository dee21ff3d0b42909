"""Few-shot Plug-and-Play VQA: the ``query`` primitive, and the baseline that answers without a program.

For each picture: image-text matching with GradCAM says where the question looks; captions are sampled from patches
drawn there; a language model reads the captions and answers (Tiong et al., "Plug-and-Play VQA", 2022; the few-shot
reading prompt is CodeVQA's, ACL 2023).
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from ..batching.model_services import ModelServices
from ..core.images import Picture
from ..core.loop_thread import together
from ..core.question_kind import Wording, bare, question_kind, word_question
from ..core.settings import QuerySettings
from ..core.text import caption_line
from ..core.trace import Evidence, Form, ImageRef
from ..models.protocols import CaptionRequest, GenerationRequest, Map, MatchRequest, Message, chats, prompt_text
from ..models.retrieval import ExampleIndex, Retriever
from ..prompts import KnowledgeExample, PromptSet, ReadingExample
from .parts import Numbered, Reading, context_of, read_in_parts, read_reply
from .patches import Patches
from .reading import (
    render_knowledge,
    render_knowledge_chat,
    render_reading,
    render_reading_chat,
)
from .witness import Descriptions, describe_question, stated_number

_CAPTION = "a small red cup on a blue box near a green duck"
"""As long as captions are, about: most have fewer than its twelve words."""


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
        self._chat = chats(services.reader, only=True) if settings.form == "auto" else settings.form == "chat"
        self._prompts = prompts
        self._settings = settings
        self._retriever = retriever
        self._seed = seed
        # By the identity of the set's bank, since two sets may have one name, and by form.
        self._indexes: dict[tuple[int, Form], ExampleIndex] = {}

    def with_seed(self, seed: int, *, witness: bool = False) -> PnPVQA:
        """Returns the same that samples with another seed; the embedded reading banks are shared.

        With ``witness`` the two witnesses answer where they are sure, whatever the settings say.
        """
        other = copy.copy(self)
        other._seed = seed
        if witness:
            other._settings = replace(self._settings, witness=True, stated=True)
        return other

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
        """Answers a question from sampled captions, or where it is surer from image-text matching.

        The answer is empty where every attempt to read came back so. A set whose captions the reader has no room for
        is read in parts, where the question allows it (:mod:`.parts`).

        Args:
            pictures: what the question is about, each with its number in the user's question.
            question: the question or statement.
            form: ``set`` lists every picture in the context, ``image`` reads the only one.
            task: form of the user's question, whose prompt set says how many captions are read.
            about: the user's question, where ``question`` is a program's.
            witness: whether image-text matching may answer, if the settings have it; the baseline only reads.
            parts: in how many parts at most.

        Raises:
            PromptTooLongError: the reader has no room for a set that cannot be read in parts; nothing was looked at.
            ModelError: a model failed.
        """
        fit = await self._fit(len(pictures), question, form, task, about)
        if fit < len(pictures):
            return await read_in_parts(
                pictures,
                question,
                fit,
                lambda part: self.answer(part, question, form, task, about=about),
                name=self._services.reader.name,
                parts=parts,
            )
        kind = question_kind(question, statements=self._prompts[task].statements)
        alone = witness and form == "image"
        look: Evidence | None = None
        if alone and self._settings.stated and kind.kind == "number":
            look = await self._look(pictures, question, task, about)
            number = stated_number(question, look.captions[0])
            if number:
                return Reading(number, (replace(look, kind="stated"),))
        asked = describe_question(question, statements=self._prompts[task].statements) if alone else Descriptions()
        seen = await self.match_descriptions(pictures[0], asked)
        if seen is not None and seen.text:
            return seen
        look = look or await self._look(pictures, question, task, about)
        prompt = await self._prompt(question, look.captions, form, task, about)
        text = await self._read(prompt, self._settings.max_tokens)
        read = replace(look, prompt=prompt_text(prompt), completion=text)
        answer, unread = (
            read_reply(text, kind) if self._settings.fit and text.strip() else (text.strip().lower(), False)
        )
        if unread and seen is not None and (likelier := asked.verdict(seen.evidence[0].scores, 0.5)):
            answer, unread = likelier, False
        if self._settings.fit and seen is not None and asked.choices and answer not in asked.choices:
            scores = seen.evidence[0].scores
            answer = max(zip(scores, asked.choices, strict=True))[1]  # unsure, but one of those that were named
        return Reading(answer, (read,) if seen is None else (*seen.evidence, read), unread)

    async def match_descriptions(
        self, picture: tuple[ImageRef, Picture], asked: Descriptions, *, maps: bool = True
    ) -> Reading | None:
        """Returns what image-text matching says of descriptions, up to those that suffice.

        Args:
            picture: the picture, with its number in the user's question.
            asked: what it may show.
            maps: whether the evidence is to say where the first looks, which takes longer.

        Returns:
            The answer that it is sure of, empty where it is not sure; None where it is not to answer.
        """
        if not (self._settings.witness and asked.texts):
            return None
        scores: tuple[float, ...] = ()
        relevance: tuple[Any, ...] = ()
        for text in asked.texts:
            request = MatchRequest(picture[1], text)
            if maps:
                match = await self._services.match(request)
                relevance = relevance or (_relevance_rows(match.relevance),)
            scores = (*scores, match.logit if maps else await self._services.score(request))
            if asked.suffice(scores, self._settings.doubt):
                break
        text = "; ".join(asked.texts[: len(scores)])
        seen = Evidence("itm", (picture[0],), text, relevance=relevance, scores=scores)
        return Reading(asked.verdict(scores, self._settings.doubt), (seen,))

    async def recall(self, question: str, examples: Sequence[KnowledgeExample]) -> Reading:
        """Answers a question from what the reader knows; no picture is looked at.

        Raises:
            ModelError: the reader failed.
        """
        prompt = (render_knowledge_chat if self._chat else render_knowledge)(examples, question)
        # Ten tokens, and asked once, as the paper's release does: nothing was sampled that could come out otherwise.
        request = GenerationRequest(prompt, 10, ("\n",))
        text = (await self._services.read(request)).text
        read = Evidence("knowledge", (), question, prompt=prompt_text(prompt), completion=text)
        if not (self._settings.fit and text.strip()):
            return Reading(text.strip().lower(), (read,))
        answer, unread = read_reply(text, question_kind(question))
        return Reading(answer, (read,), unread)

    def looked_for(self, question: str, task: Form, *, part: bool = False) -> str:
        """Returns a question as image-text matching sees it: the user's, or a program's, which is a ``part`` of it."""
        if self._wording(task) == "release":
            question = self._word_question(question, task, part)
        return question.strip().rstrip("?").strip()

    async def _fit(self, count: int, question: str, form: Form, task: Form, about: str | None) -> int:
        """Returns how many of some pictures the reader has room for, about; all where it does not tell."""
        reader: Any = self._services.reader
        context = context_of(reader)
        if count < 2 or context is None:
            return count
        captions = (_CAPTION,) * (self._settings.captions or self._prompts[task].captions)
        prompts = [await self._prompt(question, [captions] * several, form, task, about) for several in (1, 2)]
        single, double = [int(await asyncio.to_thread(reader.count, prompt)) for prompt in prompts]
        return max(0, min(count, 1 + (context - self._settings.max_tokens - single) // max(double - single, 1)))

    def _wording(self, task: Form) -> Wording:
        return self._settings.wording or self._prompts[task].reading_wording

    def _word_question(self, question: str, task: Form, part: bool) -> str:
        """Returns a question as the reader sees it: only the user's is ever a statement to be asked."""
        wording = self._wording(task)
        if part:
            return bare(question) if wording == "release" else question
        return word_question(question, wording, task)

    async def _look(self, pictures: Numbered, question: str, task: Form, about: str | None) -> Evidence:
        """Describes every picture where the question looks."""
        text = self.looked_for(question, task, part=about is not None)
        seen = await together(self._describe(picture, text, self._prompts[task]) for _, picture in pictures)
        captions, patches, relevance = zip(*seen, strict=True)
        return Evidence("pnpvqa", tuple(ref for ref, _ in pictures), question, captions, relevance, patches)

    async def _prompt(
        self, question: str, captions: Sequence[Sequence[str]], form: Form, task: Form, about: str | None
    ) -> str | tuple[Message, ...]:
        prompts, asked = self._prompts[task], self._word_question(question, task, about is not None)
        whole = self._word_question(about, task, False) if about else asked
        nearest_to = whole if self._settings.selection == "question" else asked
        examples = await self._reading_examples(nearest_to, form, prompts)
        if self._chat:
            return render_reading_chat(examples, captions, asked, form, prompts.image_labels, prompts.statements)
        return render_reading(examples, captions, asked, form, prompts.image_labels, self._wording(task))

    async def _describe(
        self, picture: Picture, text: str, prompts: PromptSet
    ) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...], tuple[Any, ...]]:
        """Samples captions where a text looks, until as many as are read differ, or enough are drawn.

        Returns:
            The captions, the patches that each read saw, and the map that they were drawn by.

        Keeping the first few of a hundred gives the same captions in distribution: draws are independent, and whether
        one is kept depends only on those before it.
        """
        wanted = self._settings.captions or prompts.captions
        draws = self._settings.max_draws or prompts.caption_draws
        match = await self._services.match(MatchRequest(picture, text))
        chances = Patches(match.relevance, self._settings.patches)
        captions: list[str] = []
        patches: list[tuple[int, ...]] = []
        drawn = 0
        while len(captions) < wanted and drawn < draws:
            count = min(wanted - len(captions), draws - drawn)
            seeds = _seeds(range(drawn, drawn + count), self._seed, picture.key, text)
            requests = [CaptionRequest(picture, chances.draw(seed), seed, prompts.caption_tokens) for seed in seeds]
            drawn += count
            captioned = map(caption_line, await self._services.caption.many(requests))
            for request, caption in zip(requests, captioned, strict=True):
                if caption and not any(caption in kept for kept in captions):
                    captions.append(caption)
                    patches.append(request.patches or ())
        return tuple(captions), tuple(patches), _relevance_rows(match.relevance)

    async def _read(self, prompt: str | tuple[Message, ...], max_tokens: int) -> str:
        """Asks the reader until it says something; returns an empty text where it never does."""
        shared = prompt.rfind("\n\n===\nContext:") if isinstance(prompt, str) else 0
        request = GenerationRequest(prompt, max_tokens, ("\n",), max(shared, 0))
        for _ in range(self._settings.attempts):
            completion = await self._services.read(request)
            if completion.text.strip():
                return completion.text
        return ""

    def _pool(self, prompts: PromptSet, form: Form) -> Sequence[ReadingExample]:
        """Returns the reading examples for questions of a form: never none where there are some.

        Where a set's bank has none about single pictures, its sets are shown, as the paper's release shows them.
        """
        pool = [example for example in prompts.reading if example.form == form]
        other = self._prompts.get(form, prompts)
        borrowed = [example for example in other.reading if example.form == form and other is not prompts]
        if self._settings.selection == "kind":
            pool += borrowed  # a set's bank may hold few for its single pictures
        return pool or (borrowed if form == "set" else ()) or prompts.reading or borrowed

    async def _reading_examples(self, question: str, form: Form, prompts: PromptSet) -> Sequence[ReadingExample]:
        pool = self._pool(prompts, form)
        trained = getattr(self._services.reader, "reading_shots", None)
        usual = prompts.reading_shots if trained is None else trained
        shots = usual if self._settings.shots is None else self._settings.shots
        if self._settings.selection == "kind":
            wanted = question_kind(question, statements=prompts.statements).kind
            like = [shot for shot in pool if question_kind(shot.question, statements=prompts.statements).kind == wanted]
            # The last: banks begin with what suits any question, and grow by what one kind was in want of.
            return (like or pool)[-shots:] if shots else []
        if self._retriever is None or self._settings.selection == "fixed" or len(pool) <= shots or shots == 0:
            return pool[:shots]
        key = (id(prompts.reading), form)
        if key not in self._indexes:
            self._indexes[key] = ExampleIndex(self._retriever, [example.question for example in pool])
        await self._indexes[key].prepare(question, self._services.embed.many)
        return [pool[place] for place in self._indexes[key].nearest(question, shots)]


def _relevance_rows(relevance: Map) -> tuple[Any, ...]:
    return tuple(map(tuple, relevance.tolist()))


def _seeds(places: Iterable[int], *parts: object) -> list[int]:
    """Returns a seed for each place that depends on it, on every part and on nothing else."""
    common = "".join(f"{part}\x1f" for part in parts)
    return [int.from_bytes(sha256(f"{common}{place}".encode()).digest()[:8], "big") >> 1 for place in places]
