"""An eye chart for models: does a model look at each picture that it is shown, and what are its limits?

Servers are known to show a model only the first or the last of several pictures, to lose their order, to shrink them,
to drop them silently, and to cut long prompts. So cards are drawn whose answers are known, new ones for each seed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from statistics import median
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.answer_words import number_in, yes_or_no
from ..core.errors import CodeVQAError, InputError, ModelError, NoEyesError, ServerError
from ..core.images import Picture
from ..models.protocols import LookRequest, Sight
from ..primitives.eyes import SHORT, YES_NO
from .chart_cards import COLORS, SHEET, SIZES, Card, Cards

Verdict: TypeAlias = Literal["ok", "weak", "fails", "unknown"]
REQUESTS = 50
"""Requests of a whole chart, at most."""
SETS, COUNTS = (2, 5, 10), (2, 3, 4, 5, 7, 10)
"""Pictures that are shown together, and dots that are counted."""
PROMPTS = (1_000, 4_000, 16_000)
"""Lengths of prompts, in tokens, about."""
AMPLE = 1_024
"""Tokens of a long answer, and of any where thoughts take those that the settings allow."""
_LIST = "Read the {} from {}. Answer with the {} only, separated by commas."
_FILLER, _FILLER_TOKENS = "The sky is blue. ", 5
LONGEST = 240
"""Characters of a meaning with what a refusal says."""
_SLOW_S = 60.0
"""Seconds of a chart above which it is told how long it will take."""


class OutOfTimeError(CodeVQAError):
    """The chart's seconds are over."""


@dataclass(frozen=True)
class Finding:
    """What one test measured."""

    test: str
    verdict: Verdict
    measured: str
    """The result, in a few words."""
    meaning: str
    """What the test is for."""
    limit: int | None = None
    """The number that follows: pictures, pixels, dots or tokens; None where none does."""


@dataclass(frozen=True)
class Chart:
    """What all tests measured."""

    model: str
    server: str
    """Its address; empty where the model runs here."""
    date: str
    seed: int
    requests: int
    seconds: float
    findings: tuple[Finding, ...]
    stopped: str = ""
    """Why not all tests ran; empty where all did."""

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The tests that the model does not pass."""
        return tuple(finding for finding in self.findings if finding.verdict == "fails")

    @property
    def result(self) -> str:
        """Date and result on one line, as reports repeat it."""
        bad = [f"{finding.test} ({finding.measured})" for finding in self.failed]
        partly = f"; not finished after {len(self.findings)} tests" if self.stopped else ""
        return f"{self.date}: {'fails ' + ', '.join(bad) if bad else 'passed'}{partly}"

    def settings(self) -> dict[str, object]:
        """Returns the settings that follow, under dotted names."""
        by_test = {finding.test: finding for finding in self.findings}
        values: dict[str, object] = {"chart": self.result}
        names = {"pictures": "query.pictures", "sees": "query.pictures", "thoughts": "query.max_tokens"}
        for test, name in names.items():
            if test in by_test and (limit := by_test[test].limit) is not None:
                values[name] = limit
        if "probabilities" in by_test:  # said either way: the file may hold what an earlier chart found
            values["query.probabilities"] = by_test["probabilities"].verdict == "ok"
        return values


class Result(NamedTuple):
    """What a test returns."""

    verdict: Verdict
    measured: str
    limit: int | None = None
    why: str = ""
    """What a refusal says."""


@dataclass
class Examination:
    """Holds a chart up to a model, a request after the other."""

    eyes: Any
    """The model, an :class:`.Eyes`."""
    seed: int = 0
    max_tokens: int = 20
    """Tokens of a short answer, as the settings say."""
    seconds: float = 600.0
    """No request begins after so many."""
    tell: Callable[[str], None] = lambda line: None
    """Is told how long the chart takes, where that is more than a minute."""

    def __post_init__(self) -> None:
        self._cards, self._until = Cards(self.seed), time.monotonic() + self.seconds
        self._took: list[float] = []
        self._thoughts: list[int] = []
        """Tokens of answers that came after thoughts."""
        self._chances: list[tuple[str, dict[str, float]]] = []
        """Replies to yes or no, and what they say of both."""
        self._talks = 0
        self._starved = self._forecast = False
        self._reads = "numbers"
        """What the model reads from cards: ``numbers``, ``colors``, or nothing."""

    @property
    def requests(self) -> int:
        """How many were answered."""
        return len(self._took)

    def findings(self) -> Iterator[Finding]:
        """Runs the tests, and yields what each measured as soon as it is over.

        Raises:
            OutOfTimeError: the seconds are over; what was yielded until then holds.
            ModelError: the model failed; ServerError when its server is down, or refuses all.
        """
        blind = False
        for test, (measure, needs_eyes, meaning) in TESTS.items():
            if blind and needs_eyes:
                continue
            try:
                result = measure(self)
            except NoEyesError as error:
                blind, result = True, Result("fails", "no eyes", 0, str(error))
            about = f"{meaning} {result.why}"[:LONGEST].strip()
            yield Finding(test, result.verdict, result.measured, about, result.limit)

    # -- asking ------------------------------------------------------------------------------------------------------

    def _ask(self, pictures: Sequence[Picture], text: str, choices: Sequence[str] = (), *, short: bool = True) -> Sight:
        left = self._until - time.monotonic()
        if left <= max(self._took[-3:], default=0.0):
            raise OutOfTimeError(f"The {self.seconds:g} seconds are over.", hint="Give --seconds more.")
        if hasattr(self.eyes, "max_wait"):  # a server that says when it will answer is waited for
            self.eyes.max_wait, self.eyes.timeout = left, min(self.eyes.timeout, left)
        tokens = self.max_tokens if short and not self._starved else AMPLE
        request = LookRequest(tuple(pictures), f"{text}\n{SHORT}" if short else text, tokens, tuple(choices))
        began = time.monotonic()
        try:
            sight: Sight = self.eyes.look([request])[0]
        except ModelError as error:
            if error.wait > left:
                raise OutOfTimeError(f"{error.message} That is longer than --seconds {self.seconds:g}.") from None
            if self._took or self._starved or isinstance(error, ServerError | NoEyesError):
                raise
            self._starved = True  # its thoughts may take more tokens than an answer has
            return self._ask(pictures, text, choices, short=short)
        self._took.append(time.monotonic() - began)
        if sight.thinks or self._starved:
            self._thoughts.append(sight.completion_tokens)
        self._talks += short and len(sight.text.split()) > 8
        pace = sum(self._took[-3:]) / len(self._took[-3:])
        more = pace * (REQUESTS - self.requests)
        if self.requests > 1 and more > _SLOW_S and not self._forecast:
            self._forecast = True
            self.tell(f"{pace:.0f} s a request: about {more:,.0f} s more; it ends at --seconds {self.seconds:g}")
        return sight

    def _name(self, card: Card, pictures: Sequence[Picture]) -> str:
        """Returns the word or number that the answer to a card's question names of pictures; empty if not just one."""
        text = self._ask(pictures, card.question).text.lower()
        named = {word for word in card.words if re.search(rf"\b{word}\b", text)} if card.words else {*_numbers(text)}
        return named.pop() if len(named) == 1 else ""

    # -- tests -------------------------------------------------------------------------------------------------------

    def _sees(self) -> Result:
        right, without = dict.fromkeys(("numbers", "colors", "shapes", "arrows"), 0), 0
        for beside in ([self._cards.blank], []):  # a blank card, then none
            cards = self._cards.number(), self._cards.thing(), self._cards.thing("shape"), self._cards.arrow()
            for kind, card in zip(right, cards, strict=True):
                right[kind] += self._name(card, [card.picture]) == card.answer
                try:
                    without += self._name(card, beside) == card.answer
                except CodeVQAError as error:  # some models cannot be asked without a picture
                    if beside or isinstance(error, ServerError | OutOfTimeError):
                        raise
        self._reads = next((kind for kind in ("numbers", "colors") if right[kind] == 2), "")
        total, parts = sum(right.values()), ", ".join(f"{kind} {count}" for kind, count in right.items())
        verdict = _verdict(total, 6, 3) if total - without > 2 else "fails"
        measured = f"{total} of 8 ({parts})" if total > without else f"no eyes: {total} of 8, {without} without a card"
        return Result(verdict, measured, 0 if verdict == "fails" else None)

    def _shows_all(self) -> Result:
        if not self._reads:
            return Result("unknown", "reads neither numbers nor colors", 1)
        limit = 1
        for count in SETS:
            try:
                wrong = self._misses(count)
            except ModelError as error:
                if isinstance(error, ServerError | NoEyesError):
                    raise
                return Result("weak", f"{limit}; refuses {count}", limit, str(error))
            if wrong:
                return Result("fails", f"{limit}; of {count} {wrong}", limit)
            limit = count
        return Result("ok", str(limit), limit)

    def _misses(self, count: int) -> str:
        """Shows so many pictures, twice; says what is wrong with what was seen, empty where nothing is."""
        question = _LIST.format(self._reads, f"these {count} pictures in order", self._reads)
        hits, turned, seen = 0, 0, [0] * count
        for _ in range(2):
            cards = [self._cards.number() if self._reads == "numbers" else self._cards.thing() for _ in seen]
            text = self._ask([card.picture for card in cards], question, short=False).text.lower()
            listed = _numbers(text) if self._reads == "numbers" else re.findall("|".join(COLORS), text)
            answers = [card.answer for card in cards]
            hits += sum(map(str.__eq__, listed, answers))
            seen = [before + (answer in listed) for before, answer in zip(seen, answers, strict=True)]
            turned += listed == answers[::-1]
        slips = int(count > 2)
        if hits >= 2 * count - slips:
            return ""
        if sum(seen) >= 2 * count - slips:
            return "all, in reversed order" if turned == 2 else "all, in another order"
        places = ", ".join(str(place) for place, times in enumerate(seen, 1) if times == 2)
        return f"only number {places}" if places else "none"

    def _says_yes(self) -> Result:
        pairs = yes = 0
        for _ in range(4):
            card = self._cards.thing()
            other = self._cards.random.choice([name for name in COLORS if name != card.answer])
            right = 0
            for name in self._cards.random.sample((card.answer, other), 2):
                question = card.question.replace("What color is", "Is").replace("?", f" {name}?")
                sight = self._ask([card.picture], question, YES_NO)
                reply = yes_or_no(sight.text)
                right += reply == ("yes" if name == card.answer else "no")
                yes += reply == "yes"
                self._chances.append((reply, dict(sight.chances)))
            pairs += right == 2
        return Result(_verdict(pairs, 4, 3), f"{pairs} of 4 pairs, yes to {yes} of 8")

    def _tells_chances(self) -> Result:
        likeliest = [(reply, max(chances, key=chances.__getitem__)) for reply, chances in self._chances if chances]
        wrong = sum(bool(reply) and reply != name for reply, name in likeliest)
        verdict: Verdict = "fails" if wrong > 1 else _verdict(len(likeliest), 7, 0)
        return Result(verdict, f"in {len(likeliest)} of 8 replies" + (f", {wrong} against the text" if wrong else ""))

    def _tells_sides(self) -> Result:
        cards = [self._cards.pair(side) for side in self._cards.random.sample(("left", "right") * 2, 4)]
        right = sum(self._name(card, [card.picture]) == card.answer for card in cards)
        return Result(_verdict(right, 4, 3), f"{right} of 4")

    def _reads_small(self) -> Result:
        read = [0] * len(SIZES)
        for _ in range(2):
            sheet, numbers = self._cards.sheet()
            text = self._ask([sheet], _LIST.format("numbers", "top to bottom", "numbers"), short=False).text
            read = [before + (number in _numbers(text)) for before, number in zip(read, numbers, strict=True)]
        legible = [size for size, _ in takewhile(lambda pair: pair[1] == 2, zip(SIZES, read, strict=True))]
        if not legible:
            return Result("fails", f"not {SIZES[0]} pixels")
        return Result(_verdict(-legible[-1], -24, -48), f"{legible[-1]} pixels", legible[-1])

    def _counts(self) -> Result:
        cards = [(count, self._cards.dots(count)) for count in COUNTS]
        right = [(n, number_in(self._ask([card.picture], card.question).text) == n) for n, card in cards]
        up_to = max((count for count, _ in takewhile(lambda pair: pair[1], right)), default=0)
        return Result(_verdict(up_to, 5, 3), f"to {up_to}" if up_to else "not to 2", up_to)

    def _repeats(self) -> Result:
        differ = 0
        for request, times in (("Describe this picture in two sentences.", 3), ("Read all numbers.", 2)):
            sheet, _ = self._cards.sheet()
            texts = [self._ask([sheet], request, short=False).text for _ in range(times)]
            differ += sum(text != texts[0] for text in texts)
        return Result(_verdict(-differ, 0, -1), f"{differ} of 3 repeats differ" if differ else "yes")

    def _reads_long_prompts(self) -> Result:
        limit = 0
        for tokens in PROMPTS:
            number, filler = self._cards.next_number(), _FILLER * (tokens // _FILLER_TOKENS)
            try:
                text = self._ask(
                    [], f"The number of this text is {number}. {filler}What is the number of this text?"
                ).text
            except OutOfTimeError:
                raise
            except InputError:
                return Result("unknown", "needs a picture")
            except CodeVQAError as error:  # that it is refused is what is measured here
                return Result("weak", f"{limit:,}; refuses {tokens:,}", limit, str(error))
            if number not in text:
                return Result("fails", f"{limit:,}; forgets the beginning of {tokens:,}", limit)
            limit = tokens
        return Result("ok", f"{limit:,}", limit)

    def _thinks(self) -> Result:
        if self._thoughts:
            most = max(self._thoughts)
            measured = f"in {len(self._thoughts)} of {self.requests} replies, {most:,} tokens"
            return Result("weak", measured, max(AMPLE, 2 * most) if self._starved else None)
        if self._talks > self.requests // 10:
            return Result("weak", f"talks in {self._talks} of {self.requests} replies")
        return Result("ok", "none")

    def _takes(self) -> Result:
        if not self._took:
            return Result("unknown", "nothing was answered")
        return Result("ok", f"{median(self._took):.2f}, at most {max(self._took):.1f}")


TESTS: Mapping[str, tuple[Callable[[Examination], Result], bool, str]] = {
    "sees": (Examination._sees, True, "It answers cards, and not what is blank or missing."),
    "pictures": (Examination._shows_all, True, "Pictures at once that are all seen, in order. direct shows no more."),
    "yes and no": (Examination._says_yes, True, "Yes and no are right once each of a card."),
    "probabilities": (Examination._tells_chances, True, "Log-probabilities of yes and no: how sure an answer is."),
    "left and right": (Examination._tells_sides, True, "The one of two things on a side."),
    "smallest size": (Examination._reads_small, True, f"Height of a number on {SHEET} x {SHEET} pixels."),
    "counts": (Examination._counts, True, "Dots on a card."),
    "same twice": (Examination._repeats, True, "The same request gets the same reply."),
    "longest prompt": (Examination._reads_long_prompts, False, "Tokens, about, whose beginning is still read."),
    "thoughts": (Examination._thinks, False, "Thoughts, or talk, take the tokens of an answer (query.max_tokens)."),
    "seconds": (Examination._takes, False, "Of one request while no other is under way."),
}
"""The tests, whether each needs eyes, and what it is for."""


def _numbers(text: str) -> list[str]:
    return re.findall(r"(?<!\d)\d{3}(?!\d)", text)


def _verdict(value: int, ok: int, weak: int) -> Verdict:
    return "ok" if value >= ok else "weak" if value >= weak else "fails"
