"""Writes programs: picks in-context examples, builds the prompt, asks the language model, cuts out the program."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from ..core.errors import ProgramError
from ..core.events import EventListener, Prepared, PromptExample, Writing
from ..core.settings import WriterSettings
from ..core.text import break_control_tokens, one_line
from ..core.trace import Form, Program
from ..models.protocols import Completion, GenerationRequest, LanguageModel, Message, chats, cheap, prompt_text
from ..models.retrieval import Embed, Retriever
from ..primitives.signature import Primitive
from ..prompts import ProgramExample, PromptSet
from .examples import ExampleChoice
from .mending import with_answer
from .offer import Offer, by_form
from .prompt_forms import (
    ask_in_chat,
    header,
    heading,
    opening_line,
    render_chat,
    render_completion,
)
from .replies import extract_program

CHEAP_DRAFTS = 3
"""Programs written at most where the settings leave it open and more take little time."""


Generate: TypeAlias = Callable[[GenerationRequest], Awaitable[Completion]]
"""Asks a language model one thing; calls made at the same time share a batch."""


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
        serves: names of the built-in primitives that the models serve (:func:`.servable_names`); None is all but a
            detector's. Prompt sets are shown without the others, and without the programs that call one.
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
        self.language_model, self.retriever = language_model, retriever
        self.settings, self.seed = settings, seed
        self._offer = Offer(
            by_form(prompts), extra, serves, large=large, bank=settings.bank, release=settings.wording == "release"
        )
        self._examples = ExampleChoice(self._offer, retriever, settings, seed)
        self.primitives = self._offer.primitives
        """All that programs may call, whichever of them a prompt set describes."""
        self.prompts = self._offer.prompts

    def with_extra(self, extra: Iterable[Primitive], serves: Collection[str] | None = None) -> Writer:
        """Returns a writer that also describes these primitives, over models that serve those built-in ones."""
        return self._but(extra=(*self._offer.own, *extra), serves=self._offer.serves if serves is None else serves)

    @cached_property
    def for_large_sets(self) -> Writer:
        """The writer of programs about large sets; this writer where its prompt set has no examples of those."""
        prompts = self._offer.bare.get("set")
        return self._but(large=True) if prompts is not None and prompts.large_sets else self

    def _but(self, **other: Any) -> Writer:
        options = {"extra": self._offer.own, "serves": self._offer.serves, "seed": self.seed, **other}
        return Writer(self.language_model, self._offer.bare, self.retriever, self.settings, **options)

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

    def prompts_for(self, form: Form) -> PromptSet:
        """Returns the prompt set that serves a form; see :meth:`.Offer.prompts_for`."""
        return self._offer.prompts_for(form)

    def select(self, question: str, form: Form, shots: int | None = None, draft: int = 0) -> list[ProgramExample]:
        """Returns the in-context examples for a question; see :meth:`.ExampleChoice.select`."""
        return self._examples.select(question, form, shots, draft)

    def sentences(self, questions: Iterable[str], form: Form) -> list[str]:
        """Returns what is embedded to choose the examples of questions."""
        return self._examples.sentences(questions, form)

    async def prepare(self, question: str, form: Form, embed: Embed) -> None:
        """Embeds a question together with others; see :meth:`.ExampleChoice.prepare`."""
        await self._examples.prepare(question, form, embed)

    def preamble(self, form: Form) -> str:
        """Returns the text before the first example: instruction, constants and API reference."""
        return self._offer.preamble(form, chat=self.prompt_form == "chat")

    def request(self, question: str, form: Form, shots: int | None = None) -> tuple[GenerationRequest, tuple[str, ...]]:
        """Returns exactly what the model is asked, and the ids of the examples shown.

        Raises:
            InputError: there are not so many examples.
        """
        examples = self.select(question, form, shots)
        return self._request(question, form, examples), tuple(example.id for example in examples)

    def _request(self, question: str, form: Form, examples: Sequence[ProgramExample]) -> GenerationRequest:
        preamble, question = self.preamble(form), self._examples.word(question, form)
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
                lacking=self._offer.lacking,
            )
            shared = len(turns) - 1 if self.settings.selection == "fixed" else 1
            return GenerationRequest(turns, self.settings.max_tokens, shared=shared)
        prompt = render_completion(preamble, examples, question, form)
        # With nearest examples only the preamble is common to all questions; fixed ones are common too.
        shared = prompt.rfind("\n# Image") if self.settings.selection == "fixed" else len(preamble.rstrip("\n"))
        stop = f"\n{heading(form, len(examples) + 2)}"  # the next example's, which no comment of the program's is
        return GenerationRequest(prompt, self.settings.max_tokens, (stop,), max(shared, 0))

    async def write(
        self,
        question: str,
        form: Form,
        generate: Generate,
        *,
        shots: int | None = None,
        draft: int = 0,
        tell: EventListener | None = None,
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
            tell(Prepared(_prompt_examples(examples), prompt_text(request.prompt)))
        ids = tuple(example.id for example in examples)
        return await self._write_program(request, Program("", question, form, ids), generate, tell)

    async def repair(
        self,
        failed: Program,
        error: ProgramError,
        generate: Generate,
        *,
        tell: EventListener | None = None,
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
        shown = [example for example in self._examples.bank(failed.form) if example.id in failed.examples]
        shown.sort(key=lambda example: failed.examples.index(example.id))
        ids = tuple(example.id for example in shown)
        request = self._request(failed.question, failed.form, shown)
        complaint = one_line(f"That program fails: {error}")
        source = break_control_tokens(failed.source)
        question = self._examples.word(failed.question, failed.form)
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
        return await self._write_program(replace(request, prompt=prompt), failed, generate, tell)

    async def _write_program(
        self, request: GenerationRequest, known: Program, generate: Generate, tell: EventListener | None
    ) -> Program:
        """Sends a prompt to the model, and returns its reply as a program about the question of ``known``."""
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
    """Reports the program in a completion while it grows. After the ``with`` block it reports nothing."""

    def __init__(self, tell: EventListener | None, continued: bool) -> None:
        self._tell = tell
        self._continued = continued
        self._last_source = ""

    def __enter__(self) -> _Telling:
        return self

    def __exit__(self, *_: object) -> None:
        self._tell = None

    def __call__(self, text: str) -> None:
        # A fence is one only once its line is whole.
        whole, _, last = text.rpartition("\n")
        source = extract_program(whole if last.startswith("`") else text, continued=self._continued, ended=False)
        tell = self._tell
        if tell is not None and source != self._last_source:
            self._last_source = source
            tell(Writing(source))


def _prompt_examples(examples: Sequence[ProgramExample]) -> tuple[PromptExample, ...]:
    return tuple(
        PromptExample(example.id, example.question, f"{opening_line(example.form, number)}\n{example.program.strip()}")
        for number, example in enumerate(examples, 1)
    )
