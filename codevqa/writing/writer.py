"""Writes programs: picks in-context examples, builds the prompt, asks the language model, cuts out the program.

The completion prompt is the paper's, to the byte (Subramanian et al., ACL 2023): the preamble, then for each example
``# Image j: <Question>``, the line that opens the image, the program; last ``# Image k+1: <Question>``, which the model
continues with the opening line and the program.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..core.errors import InputError, ProgramError, SetupError
from ..core.events import Prepared, Shown, Tell, Writing
from ..core.settings import WriterSettings
from ..core.text import sentence_case
from ..core.trace import Form, Program
from ..models.base import Completion, GenerationRequest, LanguageModel, Message
from ..models.retrieval import ExampleIndex, Retriever
from ..primitives.signature import Primitive
from ..primitives.visual import VISUAL
from ..prompts import Example, PromptSet

__all__ = ["Writer", "by_form", "extract_program", "opening_line", "render_chat", "render_completion"]

STOP = ("\n# Image",)
"""A new example header ends the program."""


class Generate(Protocol):
    """Asks a language model one thing; calls made at the same time share a batch."""

    async def __call__(self, request: GenerationRequest) -> Completion:
        """Returns the completion of the request."""
        ...


def opening_line(form: Form, number: int) -> str:
    """Returns the line that opens the image (or set) of example ``number``."""
    if form == "set":
        return f'images = open_images("ImageSet{number}.jpg")'
    return f'img = open_image("Image{number}.jpg")'


def header(question: str, form: Form, number: int) -> str:
    """Returns the comment that introduces example ``number``."""
    kind = "Image Set" if form == "set" else "Image"
    return f"# {kind} {number}: {sentence_case(question)}"


def render_completion(preamble: str, examples: Sequence[Example], question: str, form: Form) -> str:
    """Returns the completion prompt, byte for byte as described above (no newline at its end)."""
    blocks = [preamble.rstrip("\n"), *map(_block, examples, range(1, len(examples) + 1))]
    blocks.append(header(question, form, len(examples) + 1))
    return "\n".join(blocks)


@functools.lru_cache(maxsize=1 << 14)
def _block(example: Example, number: int) -> str:
    opening = opening_line(example.form, number)
    return "\n".join((header(example.question, example.form, number), opening, example.program.strip("\n")))


def render_chat(preamble: str, examples: Sequence[Example], question: str, form: Form) -> tuple[Message, ...]:
    """Returns the same prompt as turns: each example's header is a user turn and its program the assistant's."""
    turns = [Message("system", f"{preamble.strip()}\n\nReply with the Python program only.")]
    for number, example in enumerate(examples, 1):
        turns.append(Message("user", header(example.question, example.form, number)))
        program = f"{opening_line(example.form, number)}\n{example.program.strip()}"
        turns.append(Message("assistant", f"```python\n{program}\n```"))
    turns.append(Message("user", header(question, form, len(examples) + 1)))
    return tuple(turns)


_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:\n```|\Z)", re.DOTALL)


_OPENING = re.compile(r"\s*(?:img\s*=\s*open_image|images\s*=\s*open_images)\s*\(")


def after_header(completion: str) -> str:
    """Cuts off words with which the model first goes on with the question.

    The completion prompt ends inside a comment, so what comes before the first line end belongs to the comment: a "?"
    that the question lacks, or a clause more.
    """
    first, _, rest = completion.partition("\n")
    if not first.strip() or _OPENING.match(first):
        return completion
    continues = not (first[0].isalpha() or first[0] in "_`#") or _OPENING.match(rest)
    return rest if continues else completion


def extract_program(completion: str, *, continued: bool = False) -> str:
    """Cuts the program out of what the model wrote: without code fences, prose around them, or a next header.

    Args:
        completion: what the model wrote.
        continued: whether it continued a completion prompt, which ends inside a comment.
    """
    text = completion.replace("\r\n", "\n").replace("\r", "\n")
    if continued:
        text = after_header(text)
    fenced = _FENCE.search(text)
    if fenced:
        text = fenced.group(1)
    text = text.strip("\n").split(STOP[0])[0]
    lines = text.split("\n")
    # Some models repeat the header they were given before they go on.
    while lines and (not lines[0].strip() or re.match(r"#\s*Image", lines[0])):
        lines.pop(0)
    return "\n".join(line.rstrip() for line in lines).rstrip()


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
        extra: primitives of the user's, described after those the prompt set names.
        seed: seed of random selection, mixed with the question.

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
        seed: int = 0,
    ) -> None:
        self.language_model = language_model
        self.prompts: Mapping[Form, PromptSet] = by_form(prompts)
        self.retriever = retriever
        self.settings = settings
        self.seed = seed
        self._extra = tuple(extra)
        self._indexes: dict[Form, ExampleIndex] = {}
        self._preambles: dict[Form, tuple[PromptSet, str]] = {}

    def with_extra(self, extra: Iterable[Primitive]) -> Writer:
        """Returns a writer that also describes these primitives."""
        more = (*self._extra, *extra)
        return Writer(self.language_model, self.prompts, self.retriever, self.settings, extra=more, seed=self.seed)

    def preamble(self, form: Form) -> str:
        """Returns the text before the first example: instruction, constants and API reference."""
        prompts = self.prompts_for(form)
        known = self._preambles.get(form)
        if known is None or known[0] is not prompts:
            shown = VISUAL.subset(prompts.primitives).extend(self._extra)
            known = self._preambles[form] = (prompts, prompts.preamble.replace("{api}", shown.reference()))
        return known[1]

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

    def select(self, question: str, form: Form, shots: int | None = None) -> list[Example]:
        """Returns the in-context examples for a question, in the order they are shown.

        Args:
            question: what they are to be like.
            form: of which form they are.
            shots: how many; None takes the settings' number, or the prompt set's.

        Raises:
            InputError: there are not so many.
        """
        prompts = self.prompts_for(form)
        pool = [example for example in prompts.examples if example.form == form]
        if shots is None:
            shots = min(prompts.shots if self.settings.shots is None else self.settings.shots, len(pool))
        elif not 0 <= shots <= len(pool):
            kind = "one image" if form == "image" else "a set of images"
            raise InputError(
                f"{shots} examples were asked for; the prompt set {prompts.name} has {len(pool)} about {kind}.",
                hint=f"Choose 0 to {len(pool)}.",
            )
        if self.settings.selection == "nearest" and self.retriever is not None:
            if form not in self._indexes:
                self._indexes[form] = ExampleIndex(self.retriever, [example.question for example in pool])
            return [pool[place] for place in self._indexes[form].nearest(question, shots)]
        if self.settings.selection == "random":
            return random.Random(f"{self.seed}:{question}").sample(pool, shots)
        return pool[:shots]

    def request(self, question: str, form: Form, shots: int | None = None) -> tuple[GenerationRequest, tuple[str, ...]]:
        """Returns exactly what the model is asked, and the ids of the examples shown.

        Raises:
            InputError: there are not so many examples.
        """
        examples = self.select(question, form, shots)
        return self._request(question, form, examples), tuple(example.id for example in examples)

    def _request(self, question: str, form: Form, examples: Sequence[Example]) -> GenerationRequest:
        preamble = self.preamble(form)
        if self.settings.form == "chat":
            turns = render_chat(preamble, examples, question, form)
            return GenerationRequest(turns, self.settings.max_tokens, STOP)
        prompt = render_completion(preamble, examples, question, form)
        # With nearest examples only the preamble is common to all questions; fixed ones are common too.
        shared = prompt.rfind("\n# Image") if self.settings.selection == "fixed" else len(preamble.rstrip("\n"))
        return GenerationRequest(prompt, self.settings.max_tokens, STOP, max(shared, 0))

    async def write(
        self, question: str, form: Form, generate: Generate, *, shots: int | None = None, tell: Tell | None = None
    ) -> Program:
        """Asks the model for a program.

        Args:
            question: the question.
            form: whether it is about one image or a set.
            generate: asks the model.
            shots: how many examples are shown; None takes the settings' number, or the prompt set's.
            tell: told of the prompt and, from the model's thread, of the program as far as it is written.

        Raises:
            InputError: there are not so many examples.
            ModelError: the model failed.
        """
        examples = self.select(question, form, shots)
        request = self._request(question, form, examples)
        if tell is not None:
            tell(Prepared(_shown(examples), prompt_text(request.prompt)))
        ids = tuple(example.id for example in examples)
        return await _written(request, Program("", question, form, ids), generate, tell)

    async def repair(
        self, failed: Program, error: ProgramError, generate: Generate, *, tell: Tell | None = None
    ) -> Program:
        """Shows the model its program with the error and asks once more, after the same examples.

        Raises:
            ModelError: the model failed.
        """
        request, ids = self.request(failed.question, failed.form, len(failed.examples))
        complaint = f"That program fails: {error}"
        prompt: str | tuple[Message, ...]
        if isinstance(request.prompt, str):
            head = header(failed.question, failed.form, len(ids) + 1)
            prompt = f"{request.prompt}\n{failed.source}\n# {' '.join(complaint.split())}. Corrected:\n{head}"
        else:
            prompt = (
                *request.prompt,
                Message("assistant", f"```python\n{failed.source}\n```"),
                Message("user", f"{complaint}\nWrite the corrected program."),
            )
        return await _written(replace(request, prompt=prompt), failed, generate, tell)


async def _written(request: GenerationRequest, known: Program, generate: Generate, tell: Tell | None) -> Program:
    """Returns what the model makes of a prompt, as a program about the question of the one known."""
    continued = isinstance(request.prompt, str)
    with _Telling(tell, continued) as telling:
        completion = await generate(replace(request, on_text=telling) if tell is not None else request)
    source = extract_program(completion.text, continued=continued)
    return replace(known, source=source, prompt=prompt_text(request.prompt), completion=completion.text)


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
        source = extract_program(whole if last.startswith("`") else text, continued=self._continued)
        tell = self._tell
        if tell is not None and source != self._told:
            self._told = source
            tell(Writing(source))


def _shown(examples: Sequence[Example]) -> tuple[Shown, ...]:
    return tuple(
        Shown(example.id, example.question, f"{opening_line(example.form, number)}\n{example.program.strip()}")
        for number, example in enumerate(examples, 1)
    )


def prompt_text(prompt: str | tuple[Message, ...]) -> str:
    """Returns a prompt as text: itself, or each turn under its role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"[{message.role}]\n{message.content}" for message in prompt)
