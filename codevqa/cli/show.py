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
    from ..presets.configuration import Configuration
    from .configured import Chosen


def warn(message: str) -> None:
    """Says something on standard error."""
    print(visible(f"codevqa: {message}"), file=sys.stderr, flush=True)


@contextmanager
def open_engine(choice: Chosen, quiet: bool) -> Iterator[CodeVQA]:
    """Opens an engine, saying how long it took."""
    from ..presets.assembly import check_server, prompt_sets, whole
    from ..presets.configuration import configure
    from ..presets.fetching import fetch
    from ..presets.presets import preset

    # A mistake is told before anything heavy is imported, or fetched.
    configuration = configure(choice.preset, choice.layers)
    named = preset(configuration.preset)
    prompt_sets(named, configuration.settings.prompts)
    if quiet:
        hush()
    fetch(whole(configuration).parts.values(), tell=(lambda line: None) if quiet else warn, preset=choice.preset)
    check_server(configuration)
    if not quiet:
        tell_compat(configuration)
        warn(f"loading {choice.preset} ({named.about}) ...")
    started = time.perf_counter()
    from ..engine.codevqa import CodeVQA

    with CodeVQA.from_configuration(configuration) as vqa:
        if not quiet:
            warn(f"ready in {time.perf_counter() - started:.1f} s")
        yield vqa


def hush() -> None:
    """Keeps whatever the libraries say off standard error, bars of downloads among it."""
    import logging
    import warnings

    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    warnings.simplefilter("ignore")
    for library in ("huggingface_hub", "sentence_transformers", "torch", "transformers"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


def tell_compat(configuration: Configuration) -> None:
    """Says on standard error what ``--compat`` sets, where nothing else set it."""
    from ..presets.fields import flat, written

    values = flat(configuration.settings)
    values |= {f"{role}.{name}": one for role, given in configuration.options.items() for name, one in given.items()}
    set_by_it = [name for name, origin in configuration.origins.items() if origin.startswith("--compat ")]
    if set_by_it:
        lines = (f"{name} = {written(values[name])}" for name in set_by_it)
        warn("\n  ".join([f"{configuration.origins[set_by_it[0]]} sets", *lines]))


def print_answer(answer: Answer, *, json: bool, evidence: bool, quiet: bool) -> None:
    """Prints the answer on standard output; the program, its calls and what it printed on standard error."""
    if answer.fallback and answer.error is not None and not quiet:
        warn(f"the program failed ({answer.error.message}); plain PnP-VQA answered instead")
    for warning in answer.warnings:
        warn(warning.message)
    if json:
        print(answer.to_json(evidence=evidence))
        return
    if not quiet:
        if answer.program is not None:
            print(visible(answer.program.source), file=sys.stderr)
        for call in answer.trace.calls:
            print(visible(f"  {call}  ({call.seconds:.2f} s)"), file=sys.stderr)
        print_printed(answer)
        print(f"  {answer.seconds:.2f} s in all", file=sys.stderr, flush=True)
    print(visible(answer.text))


def print_printed(answer: Answer) -> None:
    """Prints on standard error what the program printed, as far as it came."""
    for line in answer.trace.printed.splitlines():
        print(visible(f"  printed: {line}"), file=sys.stderr)
