"""How a question is answered: every number of the method, as frozen data with the paper's values as defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from .errors import InputError, nearest
from .question_kind import Wording

PromptForm = Literal["auto", "completion", "chat"]
"""Of prompts: the paper's text to be continued, byte for byte, or the same as turns of a chat; ``auto`` is what suits
the language model."""

_From0 = Annotated[int, Field(ge=0)]
_From1 = Annotated[int, Field(ge=1)]
_Seconds = Annotated[float, Field(gt=0)]

STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""A text stands for no number, and true for no 1."""
_SHOULD = "Input should be "
"""How pydantic begins most of what it says."""


def check_value(name: str, value: object, kind: Any, *, written: bool = False) -> Any:
    """Returns a value as an annotation takes it: 2 as 2.0 for a float, and where it is ``written`` "2" as 2, too.

    Raises:
        InputError: the annotation does not take it.
    """
    try:
        if written and isinstance(value, str):
            return _adapter(kind).validate_strings(value)
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise InputError(f"{name} {_describe_mistakes(error.errors(include_url=False))}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=STRICT)


def input_error(error: ValidationError, kind: type, table: str = "") -> InputError:
    """Returns the first mistake in the fields of a dataclass; ``table`` stands before their names."""
    first, *others = error.errors(include_url=False)
    if not first["loc"]:
        return InputError(f"{table.rstrip('.')} must be {kind.__name__}, not {first['input']!r:.60}.")
    name = f"{table}{first['loc'][0]}"
    if first["type"] == "unexpected_keyword_argument":
        return InputError(f"No field {name}.", hint=nearest(str(first["loc"][0]), kind.__annotations__))
    if first["type"] == "missing":
        return InputError(f"{name} is missing.")
    if first["type"] == "value_error":
        return InputError(f"{name} {first['ctx']['error']}.")
    return InputError(
        f"{name} {_describe_mistakes([first, *(other for other in others if other['loc'][0] == first['loc'][0])])}"
    )


def _describe_mistakes(mistakes: Iterable[ErrorDetails]) -> str:
    """Returns in pydantic's words what a value must be; of a union, each thing that it may be."""
    first, *others = mistakes
    texts = list(dict.fromkeys(mistake["msg"].partition(", unable to")[0] for mistake in (first, *others)))
    if all(text.startswith(_SHOULD) for text in texts):
        return f"must be {' or '.join(text.removeprefix(_SHOULD) for text in texts)}, not {first['input']!r:.60}."
    return f"cannot be {first['input']!r:.60}: {' or '.join(texts)}."


@dataclass(frozen=True, config=STRICT)
class _Table:
    """Fields that are checked when it is made.

    Raises:
        InputError: a field has a value that it cannot have.
    """

    table: ClassVar[str] = ""
    """What stands before its fields in configurations, such as ``query.``."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_values(cls, data: Any, make: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return make(data)
        except ValidationError as error:
            raise input_error(error, cls, cls.table) from None


@dataclass(frozen=True, config=STRICT)
class QuerySettings(_Table):
    """Few-shot Plug-and-Play VQA (Tiong et al. 2022; few-shot form: CodeVQA, section 3)."""

    table: ClassVar[str] = "query."

    patches: _From1 = 20
    """Patches shown to the captioner for one caption, drawn in proportion to relevance."""
    captions: _From1 | None = None
    """Captions read for each image; None takes the prompt set's number (7 for GQA and NLVR2, 3 for COVR)."""
    max_draws: _From1 | None = None
    """Captions drawn for an image at most, where many repeat one another; None takes the prompt set's number (100)."""
    max_tokens: _From1 = 20
    """Length of an answer in tokens."""
    attempts: _From1 = 5
    """Readings of one prompt at most, while the answer comes back empty. A program whose question is never answered
    gets an empty text, and goes on."""
    form: PromptForm = "auto"
    """Form of the reading prompt; ``auto`` is the paper's text wherever the reader can continue one: small models read
    worse as a chat."""
    wording: Wording | None = None
    """How a question is put to the reader; None takes the prompt set's: banks of ours ask statements. With ``release``
    image-text matching sees that wording, too, the questions of programs lose capitals and marks, and captions and
    examples are written as the release does."""
    selection: Literal["kind", "question", "nearest", "fixed"] = "question"
    """In-context reading examples: the last of the bank that want the same kind of answer, whose prompts all begin
    alike; the nearest to the user's question for all that its program asks (as the paper's release does); the nearest
    to each thing asked; or always the first of the bank."""
    shots: _From0 | None = None
    """In-context reading examples; None takes the reader's number where it was trained with one (``mini``'s with none),
    or the prompt set's."""
    fit: bool = True
    """Whether an answer is put in the words of its kind: "No, there is none." is no, "four blocks" is 4."""
    witness: bool = False
    """Whether image-text matching answers in place of reading where it is sure: yes/no and "How many" about a picture,
    put as descriptions (:mod:`codevqa.primitives.witness`). Measured on drawn pictures only."""
    stated: bool = False
    """Whether a number that captions state ("a stack of three books") is taken without asking the reader, who may be
    too small to copy it. Measured on drawn pictures only."""
    pictures: _From0 | None = None
    """Most pictures that a vision-language model is shown at once; None shows it as many as it has room for. Its chart
    (``codevqa doctor``) tells. More are shown in parts to what a program asks, and refused to the method ``direct``."""
    over_limit: bool = False
    """Whether ``direct`` shows more than that all the same."""
    probabilities: bool = True
    """Whether a vision-language model is asked how probable yes and no are."""
    doubt: Annotated[float, Field(ge=0, le=0.5)] = 0.01
    """The witness is sure where the matcher's probability is below this, or above 1 minus this."""


@dataclass(frozen=True, config=STRICT)
class WriterSettings(_Table):
    """Program writing."""

    table: ClassVar[str] = "writer."

    form: PromptForm = "auto"
    """Form of the program prompt; ``auto`` is a chat where the language model has a chat template."""
    tell_kind: bool = True
    """Whether a chat prompt says after each question what kind of answer it wants."""
    wording: Wording | None = None
    """How a question is put to who writes a program about it (:data:`.question_kind.Wording`); None takes the
    prompt set's: banks of ours show statements as they stand."""
    selection: Literal["nearest", "random", "fixed"] = "nearest"
    """In-context examples: nearest by sentence embedding, random for each question, or the first of the bank."""
    retrieval: Literal["words", "structure", "both"] = "words"
    """What makes an example near: its question's words; its structure, in which all but function words, numbers and
    places are one "thing"; or the sum of both."""
    bank: _From1 | None = None
    """Annotated programs among which examples are chosen, the first of the prompt set; None takes all."""
    shots: _From0 | None = None
    """In-context examples; None takes the prompt set's number (12 GQA, 6 COVR and NLVR2)."""
    programs: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Programs that are written for a question, from different subsets of its nearest examples. The one that agrees
    most with the others in random worlds is run; where the first three agree, or two of three, no more are written.
    ``auto`` is 3 where the language model says that more texts cost little (on a GPU, or a server), else 1. At least
    :attr:`Settings.agree` are written."""
    refuse: bool = True
    """Whether a program is refused whose answer is the same in all random worlds, or that asks for something that
    changes nothing there. Then another is written, even where ``programs`` is 1; so is one beside a program that looks
    at one picture of several."""
    max_tokens: _From1 = 512
    """Length of a program in tokens."""
    repairs: _From0 = 1
    """How often a program that fails before it called a primitive is shown to the model again, with line and error."""
    fit: bool = True
    """Whether an answer is held to the kind that its question wants, and put in that kind's words; and whether the last
    value of a program that names no answer is the answer, marked as mended."""


@dataclass(frozen=True, config=STRICT)
class Limits(_Table):
    """What one program may use."""

    table: ClassVar[str] = "limits."

    seconds: _Seconds = 2.0
    """The program's own computing time; waiting for models does not count."""
    wall_seconds: _Seconds = 120.0
    """The run by the clock on the wall, without what it waits for models: many of them may be under way at once."""
    model_seconds: _Seconds = 3600.0
    """What all its calls wait for models. Only one that hangs should ever take so long."""
    memory_bytes: _From1 = 64 << 20
    calls: _From0 = 200
    """Calls of primitives, for each ten pictures of the question or fewer."""
    output_bytes: _From0 = 64 << 10
    """What it may print."""
    source_bytes: _From1 = 64 << 10
    recursion: _From1 = 200
    second_wall: bool | Literal["auto"] = "auto"
    """Whether the operating system shuts the worker in as well (SECURITY.md). True fails where it cannot; "auto" goes
    on without there, and says so in the log."""

    def about(self, pictures: int) -> Limits:
        """Returns what a program about so many pictures may use."""
        tens = -(-pictures // 10)
        if tens <= 1:
            return self
        slow = max(1.0, tens / 10)
        wall, own = self.wall_seconds * slow, self.seconds * slow
        return replace(self, calls=self.calls * tens, wall_seconds=wall, seconds=own)


@dataclass(frozen=True, config=STRICT)
class SetSettings(_Table):
    """Questions about many pictures."""

    table: ClassVar[str] = "sets."

    large: _From1 = 10
    """A set of more pictures is large: its programs are offered ``select``, ``count``, ``most_common`` and ``sort_by``,
    and what follows holds for it."""
    witness: bool = False
    """Whether image-text matching answers in place of reading where it is sure, as with :attr:`QuerySettings.witness`
    and :attr:`QuerySettings.stated`."""
    exact: bool = True
    """Whether ``select`` looks closely at every picture. False rules out those whose contrastive score is below
    :attr:`rule_out`."""
    rule_out: Annotated[float, Field(ge=-1, le=1)] = -1.0
    """Contrastive score below which a picture is ruled out; it depends on the matcher. -1 rules out none."""
    seconds: _Seconds | None = None
    """Seconds after which ``select`` begins no further picture; what it found until then is marked as a part."""


@dataclass(frozen=True, config=STRICT)
class Settings(_Table):
    """Everything about answering that is not a model."""

    prompts: str | None = None
    """Prompt set; None takes ``gqa`` for one image and ``covr`` for several."""
    writer: WriterSettings = WriterSettings()
    query: QuerySettings = QuerySettings()
    limits: Limits = Limits()
    sets: SetSettings = SetSettings()
    position_text: Literal["phrase", "question"] = "phrase"
    """What ``get_pos`` matches: the phrase itself (the paper), or the whole question, averaged over the phrase's
    tokens inside it (the paper's released code)."""
    position_at: Literal["centre", "corner"] = "centre"
    """Which point of the patch it found ``get_pos`` returns: its centre, or its upper left corner (the released code),
    which calls what lies just below the middle neither above nor below it."""
    answers: Literal["told", "release"] = "told"
    """What becomes of the value that a program leaves: ``told`` says yes for True, refuses None and an empty text, and
    mends or replaces such a program; ``release`` takes it as Python prints it, "True" and "None", "no" where a program
    leaves none, and an empty reading as an empty answer (the released code, which its metric scores as they are)."""
    agree: Annotated[int, Field(ge=1, le=16)] = 1
    """Programs of a question that are run on its pictures. The answer that most of them give is taken. No further one
    begins once they have made ``limits.calls`` calls together."""
    abstain_below: Annotated[float, Field(ge=0, le=1)] = 0.0
    """The answer is "I don't know" where its confidence (:attr:`codevqa.Answer.confidence`) is below this. An answer
    without a confidence stays."""
    seed: int = 0
    """Seed of patch and caption sampling and of random example selection."""
    workers: _From1 = 16
    """Programs that run at once; also the largest batch a single program's call can join."""
    batch_wait: Annotated[float, Field(ge=0)] = 0.003
    """Seconds a call waits for others to share its batch, at most: it does not wait where no question under way could
    still make one."""
    max_batch: _From1 | None = None
    """Requests in one batch of any model; None lets each model say how many it likes (its ``batch``), 64 where it says
    nothing."""
    remember: _From0 = 64 << 20
    """Bytes of finished model calls that are kept, to answer the same call again; 0 keeps none. Calls that are equal
    and under way at the same time are always made once."""
    fresh: bool = False
    """Whether model servers, and tables, are asked anew what they answered before. Else it is looked up on disk."""
    ahead: bool = True
    """Whether calls that a program is certain to make, such as one for each image of a set, are begun when it starts.
    Answers, traces and errors stay the same; only the time differs."""
    chart: str = ""
    """Date and result of the chart (``codevqa doctor``) of what answers about pictures; reports repeat it."""
    strict_domain: bool = False
    """Whether a question outside of what the models know is answered "I don't know", and no model asked; where a preset
    declares its domain. Else it is answered, with a warning. A program of the user's always runs."""
    max_question: _From1 = 1000
    """Longest question, in characters."""
