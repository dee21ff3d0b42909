"""What the engine itself costs: everything but the models, which answer at once here.

    python benchmarks/overhead.py [--rounds 5]

Questions differ in picture and words, programs in words, so that no finished call helps another. Reported for 1 and 64
questions at once, in milliseconds by the clock: a program of four calls, one of a new shape, whose static check is not
remembered, and one more call of a primitive. Everything is measured once a round; what is printed is the median of the
rounds, and the least. Takes less than a minute on two idle cores. Targets on two cores: 3 ms a program, 0.3 ms a call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count, product

import numpy as np
from PIL import Image

from codevqa import CodeVQA, Models, Settings, Writer, WriterSettings
from codevqa.core.images import Picture, load_picture
from codevqa.core.trace import Form
from codevqa.models.base import CaptionRequest, Completion, GenerationRequest, Match, MatchRequest, SimilarityRequest
from codevqa.prompts import PromptSet
from codevqa.prompts import load as load_prompts


class Instant:
    """All models in one: answers at once and keeps nothing."""

    name = "instant"
    grid = 24

    def __init__(self, program: Callable[[str], str]) -> None:
        self._program = program
        self._match = Match(np.random.default_rng(0).random((24, 24), np.float32), 1.0)

    def generate(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Writes the program of a question, or says yes to a reading prompt."""
        return [Completion(self._text(str(request.prompt)), 500, 20) for request in requests]

    def match(self, requests: Sequence[MatchRequest]) -> list[Match]:
        """Returns one map for all."""
        return [self._match] * len(requests)

    def similarity(self, requests: Sequence[SimilarityRequest]) -> list[float]:
        """Returns one score for all."""
        return [0.5] * len(requests)

    def caption(self, requests: Sequence[CaptionRequest]) -> list[str]:
        """Returns captions that differ."""
        return [f"a thing number {request.seed}" for request in requests]

    def _text(self, prompt: str) -> str:
        return "yes" if prompt.endswith("A:") else self._program(prompt.rsplit(": ", 1)[1])


def engine(program: Callable[[str], str], workers: int) -> CodeVQA:
    """Returns an engine whose writer turns a question into a program."""
    models = Instant(program)
    prompts: dict[Form, PromptSet] = {"image": load_prompts("gqa"), "set": load_prompts("covr")}
    writer = Writer(models, prompts, settings=WriterSettings(selection="fixed", fit=False))
    return CodeVQA(writer, Models(models, models, models), Settings(workers=workers))


def gqa_like(question: str) -> str:
    """Returns a program of three calls, like most of GQA's."""
    word = question.split()[-1].rstrip("?")
    return (
        f'img = open_image("Image13.jpg")\nx1, y1 = get_pos(img, "{word}")\nx2, y2 = get_pos(img, "other {word}")\n'
        f'color = query(img, "What color is the {word}?")\n'
        f'if x1 < x2 and color == "yes":\n    answer = "yes"\nelse:\n    answer = "no"'
    )


def calls_of(name: str, calls: int) -> Callable[[str], str]:
    """Returns a writer of programs that make so many calls of one primitive."""
    text = {"query": 'query(img, f"is it {n} WORD?")', "get_pos": 'get_pos(img, f"WORD {n}")'}[name]

    def program(question: str) -> str:
        word = question.split()[-1].rstrip("?")
        body = text.replace("WORD", word)
        return f'img = open_image("Image13.jpg")\nfound = [{body} for n in range({calls})]\nanswer = str(len(found))'

    return program


_WORDS = count()


async def ask(vqa: CodeVQA, questions: int, at_once: int, pictures: Sequence[Picture]) -> float:
    """Asks so many questions, so many at once; returns the milliseconds that one costs."""
    slots = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with slots:
            answer = await vqa.ask_async(pictures[number % len(pictures)], f"is it a thing{number}?")
        if answer.fallback or answer.error:
            raise SystemExit(f"a program failed: {answer.error}")

    began = time.perf_counter()
    await asyncio.gather(*(one(next(_WORDS)) for _ in range(questions)))
    return 1e3 * (time.perf_counter() - began) / questions


def pictures() -> list[Picture]:
    """Returns pictures that are loaded already: decoding files is not the engine's."""
    return [load_picture(Image.new("RGB", (64, 48), (n % 256, n // 256, 0))) for n in range(512)]


def new_shapes(question: str) -> str:
    """Returns a program whose shape no other has: its static check is never remembered."""
    number = int("".join(filter(str.isdigit, question)))
    body = "".join(f"\nif x1 > {bit}:\n    x1 = x1 - {bit}" for bit in range(12) if number >> bit & 1)
    return gqa_like(question) + body


def shown(values: Sequence[float]) -> str:
    """Returns the median and the least of the rounds."""
    return f"{statistics.median(values):.3f} (least {min(values):.3f})"


def report(at_once: int, rounds: int) -> dict[str, object]:
    """Measures everything with so many questions at once, each engine once a round."""
    questions, calls = (24 if at_once == 1 else at_once), ("get_pos", "query")
    loaded, costs = pictures(), defaultdict[str, list[float]](list)
    with ExitStack() as engines:
        warm = {
            "program": (engine(gqa_like, at_once), 2 * questions),
            "program of a new shape": (engine(new_shapes, at_once), 8),
        }
        for name, several in product(calls, (2, 18)):
            warm[f"{name} {several}"] = (engine(calls_of(name, several), at_once), questions)
        for vqa, _ in warm.values():
            engines.enter_context(vqa)
            asyncio.run(ask(vqa, at_once + 4, at_once, loaded))
        for _, (name, (vqa, asked)) in product(range(rounds), warm.items()):
            costs[name].append(asyncio.run(ask(vqa, asked, at_once, loaded)))
    row: dict[str, object] = {f"ms a {name}": shown(costs[name]) for name in ("program", "program of a new shape")}
    for name in calls:
        pairs = zip(costs[f"{name} 2"], costs[f"{name} 18"], strict=True)
        row[f"ms a call of {name}"] = shown([(many - few) / 16 for few, many in pairs])
    return row


def main() -> None:
    """Measures and prints one JSON object."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, object] = {f"{at_once} at once": report(at_once, options.rounds) for at_once in (1, 64)}
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
