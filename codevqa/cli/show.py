"""What the subcommands share: opening an engine with progress, and printing an answer."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..core.text import visible

if TYPE_CHECKING:
    from ..core.answer import Answer
    from ..engine.codevqa import CodeVQA


def warn(message: str) -> None:
    """Says something on standard error."""
    print(visible(f"codevqa: {message}"), file=sys.stderr, flush=True)


@contextmanager
def open_engine(
    preset: str, prompts: str | None, language_model: str | None, quiet: bool, form: str | None = None
) -> Iterator[CodeVQA]:
    """Opens an engine, saying how long it took."""
    from ..core.settings import with_form
    from ..presets.presets import PRESETS
    from ..presets.presets import preset as find

    chosen = find(preset)  # an unknown name is reported before anything heavy is imported
    settings = None if form is None else with_form(chosen.settings, form)
    if not quiet:
        warn(f"loading {preset} ({PRESETS[preset].about}) ...")
    started = time.perf_counter()
    from ..engine.codevqa import CodeVQA

    with CodeVQA.from_preset(preset, prompts=prompts, language_model=language_model, settings=settings) as vqa:
        if not quiet:
            warn(f"ready in {time.perf_counter() - started:.1f} s")
        yield vqa


def print_answer(answer: Answer, *, json: bool, evidence: bool, quiet: bool) -> None:
    """Prints the answer on standard output; the program and its calls on standard error."""
    if json:
        print(answer.to_json(evidence=evidence))
        return
    if not quiet:
        if answer.program is not None:
            print(visible(answer.program.source), file=sys.stderr)
        for call in answer.trace.calls:
            print(visible(f"  {call}  ({call.seconds:.2f} s)"), file=sys.stderr)
        print(f"  {answer.seconds:.2f} s in all", file=sys.stderr, flush=True)
    print(visible(answer.text))
