"""How a question is answered: every number of the method, as frozen data with the paper's values as defaults."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast

from .errors import InputError

__all__ = ["Limits", "PromptForm", "QuerySettings", "Settings", "WriterSettings", "with_form"]

PromptForm = Literal["auto", "completion", "chat"]
"""Of prompts: the paper's text to be continued, byte for byte, or the same as turns of a chat; ``auto`` is what suits
the language model."""


@dataclass(frozen=True)
class QuerySettings:
    """Few-shot Plug-and-Play VQA (Tiong et al. 2022; few-shot form: CodeVQA, section 3)."""

    patches: int = 20
    """Patches shown to the captioner for one caption, drawn in proportion to relevance."""
    captions: int | None = None
    """Captions read for each image; None takes the prompt set's number (7 for GQA and NLVR2, 3 for COVR)."""
    max_draws: int | None = None
    """Captions drawn for an image at most, where many repeat one another; None takes the prompt set's number (100)."""
    max_tokens: int = 20
    """Length of an answer in tokens."""
    attempts: int = 5
    """Readings of one prompt at most, while the answer comes back empty."""
    form: PromptForm = "auto"
    """Form of the reading prompt; ``auto`` is the paper's text wherever the reader can continue one: small models read
    worse as a chat."""
    selection: Literal["kind", "question", "nearest", "fixed"] = "question"
    """In-context reading examples: the last of the bank that want the same kind of answer, whose prompts all begin
    alike; the nearest to the user's question for all that its program asks (as the paper's release does); the nearest
    to each thing asked; or always the first of the bank."""
    shots: int | None = None
    """In-context reading examples; None takes the prompt set's number."""
    fit: bool = True
    """Whether an answer is put in the words of its kind: "No, there is none." is no, "four blocks" is 4."""
    witness: bool = False
    """Whether image-text matching answers in place of reading where it is sure: yes/no and "How many" about a picture,
    put as descriptions (:mod:`codevqa.primitives.witness`)."""
    stated: bool = False
    """Whether a number that captions state ("a stack of three books") is taken without asking the reader, who may be
    too small to copy it."""
    doubt: float = 0.01
    """The witness is sure where the matcher's probability is below this, or above 1 minus this."""


@dataclass(frozen=True)
class WriterSettings:
    """Program writing."""

    form: PromptForm = "auto"
    """Form of the program prompt; ``auto`` is a chat where the language model has a chat template."""
    tell_kind: bool = True
    """Whether a chat prompt says after each question what kind of answer it wants."""
    selection: Literal["nearest", "random", "fixed"] = "nearest"
    """In-context examples: nearest by sentence embedding, random for each question, or the first of the bank."""
    shots: int | None = None
    """In-context examples; None takes the prompt set's number (12 GQA, 6 COVR and NLVR2)."""
    most_shots: int | None = None
    """In-context examples at most where the prompt set says how many: a processor reads each for a second or two."""
    max_tokens: int = 512
    """Length of a program in tokens."""
    repairs: int = 1
    """How often a program that fails is shown to the model again, with the line, the error and the values so far."""
    repair_runs: bool = True
    """Whether that goes for programs that fail while they run, or answer another kind of question, too; else only for
    those refused before any model is asked."""
    rules: tuple[str, ...] = ("picture", "subject", "primitive", "kind", "path", "attribute", "truth", "side", "asked")
    """What a program is held to against its question while a repair is left, and by the decisive ones a mended program
    (:mod:`codevqa.writing.program_checks`)."""
    fit: bool = True
    """Whether an answer is held to the kind that its question wants, and put in that kind's words; and what a program
    plainly means without saying it is put right (:mod:`codevqa.writing.mending`)."""
    constrained: bool | Literal["auto"] = False
    """Whether the model is held to a grammar of programs, so that what it writes parses and calls what there is, as it
    is meant to be called. True needs a model that can be held to one, and fails where it cannot; "auto" goes on without
    there, and says so in the log."""


@dataclass(frozen=True)
class Limits:
    """What one program may use."""

    seconds: float = 2.0
    """The program's own computing time; waiting for models does not count."""
    wall_seconds: float = 120.0
    """The whole run, models included."""
    memory_bytes: int = 64 << 20
    calls: int = 200
    """Calls of primitives."""
    output_bytes: int = 64 << 10
    """What it may print."""
    source_bytes: int = 64 << 10
    recursion: int = 200
    second_wall: bool | Literal["auto"] = "auto"
    """Whether the operating system shuts the worker in as well (SECURITY.md). True fails where it cannot; "auto" goes
    on without there, and says so in the log."""


@dataclass(frozen=True)
class Settings:
    """Everything about answering that is not a model."""

    prompts: str | None = None
    """Prompt set; None takes ``gqa`` for one image and ``covr`` for several."""
    writer: WriterSettings = WriterSettings()
    query: QuerySettings = QuerySettings()
    limits: Limits = Limits()
    position_text: Literal["phrase", "question"] = "phrase"
    """What ``get_pos`` matches: the phrase itself (the paper), or the whole question, averaged over the phrase's
    tokens inside it (the paper's released code)."""
    seed: int = 0
    """Seed of patch and caption sampling and of random example selection."""
    workers: int = 16
    """Programs that run at once; also the largest batch a single program's call can join."""
    batch_wait: float = 0.003
    """Seconds a call waits for others to share its batch, at most: it does not wait where no question under way could
    still make one."""
    max_batch: int | None = None
    """Requests in one batch of any model; None lets each model say how many it likes (its ``batch``), 64 where it says
    nothing."""
    remember: int = 64 << 20
    """Bytes of finished model calls that are kept, to answer the same call again; 0 keeps none. Calls that are equal
    and under way at the same time are always made once."""
    ahead: bool = True
    """Whether calls that a program is certain to make, such as one for each image of a set, are begun when it starts.
    Answers, traces and errors stay the same; only the time differs."""
    ahead_likely: bool = False
    """Whether calls that it may make are begun as well: inside a branch, or after a loop might have been left. Quicker
    for a question asked alone; wasteful where many are asked at once."""
    max_question: int = 1000
    """Longest question, in characters."""


def with_form(settings: Settings, form: str) -> Settings:
    """Returns settings whose prompts, for programs and for reading, all have one form.

    Raises:
        InputError: there is no such form.
    """
    if form not in ("auto", "completion", "chat"):
        raise InputError(f"No form {form!r}.", hint="There are: auto, completion, chat.")
    chosen = cast(PromptForm, form)
    return replace(settings, writer=replace(settings.writer, form=chosen), query=replace(settings.query, form=chosen))
