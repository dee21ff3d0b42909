"""The figures of a run as frozen data; :mod:`codevqa.eval.report.summary` computes them, reports show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...core.trace import Method
from ..metrics import Metric
from ..metrics.base import Figure
from ..metrics.scene_graphs import SceneGraphs
from ..metrics.steps import StepSummary
from ..run.run_info import RunInfo, RunPace
from ..run.store import Store
from ..statistics import Interval, Paired


@dataclass(frozen=True)
class ErrorLine:
    """One type of error, over all rows of a method."""

    type: str
    count: int
    share: float
    """Of all rows."""
    fallback: int
    """How many of them the baseline answered; the rest have no answer."""
    accuracy: float | None
    """Mean score of those with a gold answer."""
    id: str
    """The first example it happened on."""
    message: str
    """Its message there."""


@dataclass(frozen=True)
class Repeats:
    """Accuracy over repetitions with other sampling seeds, on the questions that every one of them answered."""

    values: tuple[float, ...]
    """One accuracy a repetition, the first run included."""
    mean: float
    spread: float
    """Standard deviation of the values, over n - 1."""
    changed: Interval
    """Share of these questions whose answer is not the same in all repetitions."""
    n: int
    """Questions that every repetition answered."""


@dataclass(frozen=True)
class Selective:
    """Errors where the least sure answers are left out (Geifman and El-Yaniv 2017)."""

    errors: Mapping[float, float]
    """Mean error among the surest answers, by their share of all."""
    aurc: float
    """Area under that curve: the mean of the errors over all shares. It is the error itself where confidence says
    nothing, and smaller the more it says."""


@dataclass(frozen=True)
class MethodCost:
    """Means over the rows that say what they cost (:class:`codevqa.core.trace.Cost`)."""

    rows: int
    model_seconds: float
    program_seconds: float
    prompt_tokens: float
    completion_tokens: float
    estimated_tokens: float
    calls: Mapping[str, float]
    """Model calls a question, by kind."""
    spread: Mapping[int, float] = field(default_factory=dict)
    """Seconds at which so many percent of the questions are done: 5, 25, 50, 75, 95."""

    @property
    def seconds(self) -> float:
        """Of models and programs, without waiting: "seconds a question" on the page and in the terminal."""
        return self.model_seconds + self.program_seconds


@dataclass(frozen=True)
class MethodSummary:
    """One method by itself, over the first repetition."""

    rows: int
    accuracy: Interval | None
    """Mean score of rows with a gold answer; None where every answer is hidden."""
    fallback: Interval | None
    """Share of rows that the baseline answered in the place of a program that failed; None without programs."""
    unanswered: int
    """Rows without any answer; they score as wrong."""
    own: Interval | None
    """Accuracy of the rows that are no fallback and have an answer."""
    plain: Interval | None
    """Share of the rows with a program whose program merely passes the question to one ``query``."""
    errors: tuple[ErrorLine, ...]
    """Most frequent first."""
    tokens: float
    """Mean number of tokens the language models read and wrote."""
    corpus: Mapping[str, Figure]
    """Figures about the whole run, such as consistency; None where an input is missing."""
    reasons: Mapping[str, str]
    """Why those that are None are."""
    repeats: Repeats | None = None
    """None where there was one repetition."""
    selective: Selective | None = None
    """None where no answer has a confidence."""
    cost: MethodCost | None = None
    """None where no row says what it cost, as in runs from before it was reckoned."""


@dataclass(frozen=True)
class GroupFigures:
    """One line of a breakdown."""

    value: str
    n: int
    """Examples of it with a score by some method."""
    accuracy: Mapping[Method, Interval]
    paired: Paired | None
    """Of the first of the run's ``pairs``, where both methods scored some of its examples."""


@dataclass(frozen=True)
class Used:
    """How programs used one primitive."""

    calls: int
    questions: int
    accuracy: Interval | None
    """Of the answers of programs that called it; None where every answer is hidden."""


@dataclass(frozen=True)
class Coverage:
    """How many questions could be asked at all; the others count as wrong."""

    questions: int
    unasked: int
    """Questions that some method, in some repetition, could not be asked."""
    reasons: Mapping[str, int]
    """Rows by type of error."""

    @property
    def share(self) -> float:
        """Share of the questions that could not be asked."""
        return self.unasked / self.questions if self.questions else 0.0

    def __str__(self) -> str:
        types = ", ".join(f"{type} {count:,}" for type, count in self.reasons.items())
        return f"{self.unasked:,} of {self.questions:,} could not be asked" + (f" ({types})" if types else "")


@dataclass(frozen=True)
class Summary:
    """A whole run."""

    metric: str
    examples: int
    hidden: int
    """Examples without a gold answer."""
    methods: Mapping[Method, MethodSummary]
    paired: Paired | None
    """CodeVQA against PnP-VQA on the questions both answered."""
    pairs: Mapping[str, Paired]
    """Each two methods on the questions both answered, by names such as ``codevqa-direct``: the first minus the
    second, in the order of :data:`codevqa.eval.task.PAIRS`."""
    clusters: int
    breakdown: Mapping[str, tuple[GroupFigures, ...]]
    """By group key: numbers in their order, other values the most frequent first."""
    coverage: Coverage = Coverage(0, 0, {})
    confusion: Mapping[Method, Mapping[str, Mapping[str, int]]] = field(default_factory=dict)
    """Questions by gold answer and by what was said; rare answers are together as ``other``."""
    primitives: Mapping[str, Used] = field(default_factory=dict)
    """What programs called, by name, most calls first."""
    notes: tuple[str, ...] = ()
    """How intervals were made, and where they are weak."""
    outside: int = 0
    """Examples whose pictures or words lie outside of what the models know."""

    @property
    def outside_note(self) -> str:
        """Says how many examples lie outside; empty where none does."""
        if not self.outside:
            return ""
        return (
            f"{self.outside:,} of {self.examples:,} questions lie outside what the models know: their pictures or "
            "words are unlike those that the models were made for. They were asked anyway. Do not rely on these "
            "answers: a right one is right by chance."
        )


@dataclass(frozen=True)
class RunFigures:
    """One run with its figures."""

    name: str
    store: Store
    info: RunInfo
    pace: RunPace | None
    metric: Metric
    summary: Summary
    graphs: SceneGraphs = field(default_factory=SceneGraphs)
    """Of its pictures, as far as there are any."""
    steps: StepSummary | None = None
