"""Writes programs: picks in-context examples, builds the prompt, asks the language model, cuts out the program."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol

from ..core.errors import InputError, ProgramError, SetupError
from ..core.events import Prepared, Shown, Tell, Writing
from ..core.question_kind import put
from ..core.settings import WriterSettings
from ..core.text import one_line, unmarked
from ..core.trace import Form, Program
from ..models.base import Completion, GenerationRequest, LanguageModel, Message, chats, cheap, prompt_text
from ..models.retrieval import Embed, ExampleIndex, Retriever
from ..primitives.detection import DETECTION, count, find_object
from ..primitives.sets import SETS
from ..primitives.signature import Primitive, PrimitiveSet
from ..primitives.visual import BUILT_IN, KNOWLEDGE, VISUAL
from ..prompts import Example, PromptSet
from .mending import with_answer
from .prompt_forms import (
    ask_in_chat,
    header,
    heading,
    opening_line,
    render_chat,
    render_completion,
    skeleton,
)
from .replies import extract_program

_OPENERS = ("open_image", "open_images")
CHEAP_DRAFTS = 3
"""Programs written at most where the settings leave it open and more take little time."""
_VIEWS: Mapping[str, Sequence[Callable[[str], str]]] = {
    "words": (str,),
    "structure": (skeleton,),
    "both": (str, skeleton),
}
"""What of a question is compared, by the way of retrieval."""


class Generate(Protocol):
    """Asks a language model one thing; calls made at the same time share a batch."""

    async def __call__(self, request: GenerationRequest) -> Completion:
        """Returns the completion of the request."""
        ...


def by_form(prompts: PromptSet | Mapping[Form, PromptSet]) -> Mapping[Form, PromptSet]:
    """Returns the prompt set to use for each form of question that has examples."""
    if isinstance(prompts, Mapping):
        return dict(prompts)
    forms = {example.form for example in prompts.examples} or {prompts.form}
    return dict.fromkeys(forms, prompts)


class Writer:
    """Turns a question into a program.

    Args:
        language_model: writes the programs.
        prompts: preamble, bank of examples and default number of shots, for each form of question: one set that
            serves both, or one for each.
        retriever: embeds questions for nearest-example selection; None is enough for random or fixed selection.
        settings: prompt form, selection, shots and lengths.
        extra: more primitives, such as the user's own, described after those the prompt set names. One that is called
            as a detector's takes its place.
        serves: names of the built-in primitives that the models serve (:func:`codevqa.primitives.visual.served`); None
            is all but a detector's. Prompt sets are shown without the others, and without the programs that call one.
        seed: seed of random selection, mixed with the question.
        large: whether it writes about large sets: then it is told of what selects, groups and orders them, where the
            prompt set lets it.

    Raises:
        SetupError: a prompt set has no examples of the form it is to serve.
    """

    def __init__(
        self,
        language_model: LanguageModel,
        prompts: PromptSet | Mapping[Form, PromptSet],
        retriever: Retriever | None = None,
        settings: WriterSettings = WriterSettings(),
        *,
        extra: Iterable[Primitive] = (),
        serves: Collection[str] | None = None,
        seed: int = 0,
        large: bool = False,
    ) -> None:
        self.language_model = language_model
        self._given = by_form(prompts)
        named = {
            name for prompt_set in self._given.values() for name in prompt_set.primitives if name in KNOWLEDGE.names
        }
        self.retriever = retriever
        self.settings = settings
        self.seed = seed
        self._own, self._serves = tuple(extra), serves
        there = {*VISUAL.names, *KNOWLEDGE.names} if serves is None else serves
        own = {item.name for item in self._own}
        self._extra = (
            *(primitive for primitive in DETECTION if primitive.name in there and primitive.name not in own),
            *self._own,
        )
        known = [primitive for primitive in VISUAL.extend(KNOWLEDGE.subset(sorted(named))) if primitive.name in there]
        one_by_one = PrimitiveSet([*known, *self._extra])
        sets = [primitive for primitive in SETS if "query" in there and primitive.name not in {*one_by_one.names, *own}]
        self._told = tuple(
            primitive for primitive in sets if large and primitive is not count
        )  # for which a detector has other examples
        self.primitives: PrimitiveSet = one_by_one.extend(sets)
        """All that programs may call, whichever of them a prompt set describes."""
        self._lacking = [name for name in BUILT_IN.names if name not in one_by_one.extend(self._told)]
        self.prompts: Mapping[Form, PromptSet] = {
            form: replace(
                prompt_set,
                examples=(
                    *(example for item in self._added(prompt_set) for example in item.examples),
                    *prompt_set.examples,
                ),
            ).without(self._lacking)
            for form, prompt_set in self._given.items()
        }
        self._indexes: dict[Form, ExampleIndex] = {}
        self._preambles: dict[Form, str] = {}

    def with_extra(self, extra: Iterable[Primitive], serves: Collection[str] | None = None) -> Writer:
        """Returns a writer that also describes these primitives, over models that serve those built-in ones."""
        return self._but(extra=(*self._own, *extra), serves=self._serves if serves is None else serves)

    @cached_property
    def for_large_sets(self) -> Writer:
        """The writer of programs about large sets; the same where its prompt set speaks of none."""
        prompts = self._given.get("set")
        return self._but(large=True) if prompts is not None and prompts.large_sets else self

    def _but(self, **other: Any) -> Writer:
        options = {"extra": self._own, "serves": self._serves, "seed": self.seed, **other}
        return Writer(self.language_model, self._given, self.retriever, self.settings, **options)

    @property
    def drafts(self) -> int:
        """How many programs are written for a question: the settings', or as many as the model writes cheaply."""
        usual = CHEAP_DRAFTS if cheap(self.language_model) else 1
        return usual if self.settings.programs == "auto" else self.settings.programs

    @property
    def prompt_form(self) -> Literal["completion", "chat"]:
        """The form of the prompts: the settings', or the one that suits the model."""
        suits: Literal["completion", "chat"] = "chat" if chats(self.language_model) else "completion"
        return suits if self.settings.form == "auto" else self.settings.form

    def preamble(self, form: Form) -> str:
        """Returns the text before the first example: instruction, constants and API reference."""
        if form not in self._preambles:
            prompts = self.prompts_for(form)
            added = self._added(prompts)
            shown = self.primitives.subset(
                dict.fromkeys((*prompts.primitives, *(primitive.name for primitive in added)))
            )
            if self.prompt_form == "chat":  # where pictures are given, nothing is opened
                shown = shown.subset(name for name in shown.names if name not in _OPENERS)
            text = prompts.preamble.replace("{api}", shown.reference())
            if text == prompts.preamble:  # which says itself what there is, but not of what is the user's own
                untold = [item for item in added if not re.search(rf"\b{item.name}\b", text)]
                reference = PrimitiveSet(untold).reference()
                text = f'{text.rstrip()}\n"""\n{reference}\n"""' if untold else text
            self._preambles[form] = text
        return self._preambles[form]

    def _added(self, prompts: PromptSet) -> tuple[Primitive, ...]:
        """Returns the primitives that are told of beside a prompt set's: one that says itself what there is, as the
        paper's release does, is not added to but by ``find_object`` and the user's own."""
        whole = "{api}" in prompts.preamble
        candidates = (*self._extra, *self._told)
        return tuple(item for item in candidates if whole or item is find_object or item not in (*DETECTION, *SETS))

    def prompts_for(self, form: Form) -> PromptSet:
        """Returns the prompt set that serves a form.

        Raises:
            SetupError: there is none.
        """
        if form not in self.prompts:
            kind = "one image" if form == "image" else "a set of images"
            names = ", ".join(sorted({prompts.name for prompts in self.prompts.values()}))
            raise SetupError(f"The prompt set {names} has no examples about {kind}.", hint="Choose another.")
        return self.prompts[form]

    def select(self, question: str, form: Form, shots: int | None = None, draft: int = 0) -> list[Example]:
        """Returns the in-context examples for a question, in the order they are shown.

        Args:
            question: what they are to be like.
            form: of which form they are.
            shots: how many; None takes the settings' number, or the prompt set's.
            draft: 0 is the nearest; each other number a subset of twice as many, drawn for the question.

        Raises:
            InputError: there are not so many.
        """
        prompts = self.prompts_for(form)
        pool = self._bank(form)
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
            near = [pool[place] for place in index.nearest(self._put(question, form), looked_at)]
        elif self.settings.selection == "random":
            near = random.Random(f"{self.seed}:{question}").sample(pool, looked_at)
        else:
            near = pool[:looked_at]
        if not draft:
            return near
        places = random.Random(f"{self.seed}:{draft}:{question}").sample(range(looked_at), shots)
        return [near[place] for place in sorted(places)]

    def _put(self, question: str, form: Form) -> str:
        """Returns a question as models are shown it."""
        return put(question, self.settings.wording or self.prompts_for(form).wording, form)

    def _bank(self, form: Form) -> list[Example]:
        return [example for example in self.prompts_for(form).examples if example.form == form]

    def _index(self, form: Form) -> ExampleIndex | None:
        """Returns what finds the nearest examples of a form; None where they are not chosen so."""
        if self.settings.selection != "nearest" or self.retriever is None:
            return None
        if form not in self._indexes:
            questions = [example.question for example in self._bank(form)]
            if not questions:
                return None
            self._indexes[form] = ExampleIndex(self.retriever, questions, _VIEWS[self.settings.retrieval])
        return self._indexes[form]

    def request(self, question: str, form: Form, shots: int | None = None) -> tuple[GenerationRequest, tuple[str, ...]]:
        """Returns exactly what the model is asked, and the ids of the examples shown.

        Raises:
            InputError: there are not so many examples.
        """
        examples = self.select(question, form, shots)
        return self._request(question, form, examples), tuple(example.id for example in examples)

    def _request(self, question: str, form: Form, examples: Sequence[Example]) -> GenerationRequest:
        preamble, question = self.preamble(form), self._put(question, form)
        if self.prompt_form == "chat":
            knows = "knowledge_query" in self.prompts_for(form).primitives
            turns = render_chat(
                preamble,
                examples,
                question,
                form,
                tell_kind=self.settings.tell_kind,
                statements=self.prompts_for(form).statements,
                knowledge=knows,
                lacking=self._lacking,
            )
            shared = len(turns) - 1 if self.settings.selection == "fixed" else 1
            return GenerationRequest(turns, self.settings.max_tokens, shared=shared)
        prompt = render_completion(preamble, examples, question, form)
        # With nearest examples only the preamble is common to all questions; fixed ones are common too.
        shared = prompt.rfind("\n# Image") if self.settings.selection == "fixed" else len(preamble.rstrip("\n"))
        stop = f"\n{heading(form, len(examples) + 2)}"  # the next example's, which no comment of the program's is
        return GenerationRequest(prompt, self.settings.max_tokens, (stop,), max(shared, 0))

    def sentences(self, questions: Iterable[str], form: Form) -> list[str]:
        """Returns what is embedded to choose the examples of questions."""
        index = self._index(form)
        if index is None:
            return []
        return [sentence for question in questions for sentence in index.sentences(self._put(question, form))]

    async def prepare(self, question: str, form: Form, embed: Embed) -> None:
        """Embeds a question together with others: its examples are chosen at once then.

        Raises:
            ModelError: the retriever failed.
        """
        index = self._index(form)
        if index is not None:
            await index.prepare(self._put(question, form), embed)

    async def write(
        self,
        question: str,
        form: Form,
        generate: Generate,
        *,
        shots: int | None = None,
        draft: int = 0,
        tell: Tell | None = None,
    ) -> Program:
        """Asks the model for a program.

        Args:
            question: the question.
            form: whether it is about one image or a set.
            generate: asks the model.
            shots: how many examples are shown; None takes the settings' number, or the prompt set's.
            draft: which of several; each is shown other examples (:meth:`select`).
            tell: told of the prompt and, from the model's thread, of the program as far as it is written.

        Raises:
            InputError: there are not so many examples.
            ModelError: the model failed.
        """
        examples = self.select(question, form, shots, draft)
        request = self._request(question, form, examples)
        if tell is not None:
            tell(Prepared(_shown(examples), prompt_text(request.prompt)))
        ids = tuple(example.id for example in examples)
        return await self._written(request, Program("", question, form, ids), generate, tell)

    async def repair(
        self,
        failed: Program,
        error: ProgramError,
        generate: Generate,
        *,
        tell: Tell | None = None,
    ) -> Program:
        """Shows the model its program with the error and asks once more, after the same examples.

        Args:
            failed: the program.
            error: what is wrong with it.
            generate: asks the model.
            tell: told of the program as it is written.

        Raises:
            ModelError: the model failed.
        """
        shown = [example for example in self._bank(failed.form) if example.id in failed.examples]
        shown.sort(key=lambda example: failed.examples.index(example.id))
        ids = tuple(example.id for example in shown)
        request = self._request(failed.question, failed.form, shown)
        complaint = one_line(f"That program fails: {error}")
        source = unmarked(failed.source)
        question = self._put(failed.question, failed.form)
        asked = ask_in_chat(question, self.settings.tell_kind, self.prompts_for(failed.form).statements)
        prompt: str | tuple[Message, ...]
        if isinstance(request.prompt, str):
            head = header(question, failed.form, len(ids) + 1)
            prompt = f"{request.prompt}\n{source}\n# {complaint}. Corrected:\n{head}"
        else:
            prompt = (
                *request.prompt,
                Message("assistant", f"```python\n{source}\n```"),
                # Asked again as the question was: otherwise a small model explains, or takes another's.
                Message("user", f"{complaint}\nWrite the whole program again, corrected.\n{asked}"),
            )
        return await self._written(replace(request, prompt=prompt), failed, generate, tell)

    async def _written(
        self, request: GenerationRequest, known: Program, generate: Generate, tell: Tell | None
    ) -> Program:
        """Returns what the model makes of a prompt, as a program about the question of the one known."""
        continued = isinstance(request.prompt, str)
        with _Telling(tell, continued) as telling:
            completion = await generate(replace(request, on_text=telling) if tell is not None else request)
        source = extract_program(completion.text, continued=continued)
        whole = with_answer(source) if self.settings.fit else source
        return replace(
            known,
            source=whole,
            prompt=prompt_text(request.prompt),
            completion=completion.text,
            mended=whole != source,
        )


class _Telling:
    """Tells the program in a completion as it grows; once its block is left, nothing any more."""

    def __init__(self, tell: Tell | None, continued: bool) -> None:
        self._tell = tell
        self._continued = continued
        self._told = ""

    def __enter__(self) -> _Telling:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell = None

    def __call__(self, text: str) -> None:
        # A fence is one only once its line is whole.
        whole, _, last = text.rpartition("\n")
        source = extract_program(whole if last.startswith("`") else text, continued=self._continued, ended=False)
        tell = self._tell
        if tell is not None and source != self._told:
            self._told = source
            tell(Writing(source))


def _shown(examples: Sequence[Example]) -> tuple[Shown, ...]:
    return tuple(
        Shown(example.id, example.question, f"{opening_line(example.form, number)}\n{example.program.strip()}")
        for number, example in enumerate(examples, 1)
    )
