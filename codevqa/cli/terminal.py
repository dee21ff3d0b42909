"""What commands read from files and say on the terminal: pictures, the engine as it opens, answers, progress."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import InputError
from ..core.notices import current
from .printing import begin_line, end_line, print_json, print_text, replace_line

if TYPE_CHECKING:
    from ..core.answer import Answer
    from ..core.images import Picture
    from ..engine.codevqa import CodeVQA
    from ..eval.report.figures import Summary
    from ..eval.run.session import Status
    from ..eval.run.store import Store
    from ..presets.configuration import Configuration
    from .options import Chosen

STDIN = "-"
CALLS = 20
"""Calls of a program that are shown."""
_LOOK_S = 0.3
"""How often a run looks whether a model waits."""


def warn(message: str) -> None:
    """Says something on standard error."""
    print_text(f"codevqa: {message}", error=True)


# -- pictures ----------------------------------------------------------------------------------------------------------


def read_pictures(words: Iterable[str]) -> tuple[Picture, ...]:
    """Reads the pictures that a command names; ``-`` is standard input."""
    from ..core.images import MAX_BYTES, decode_picture, load_pictures

    return load_pictures(
        [
            decode_picture(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input") if word == STDIN else word
            for word in words
        ]
    )


# -- the engine --------------------------------------------------------------------------------------------------------


@contextmanager
def open_engine(choice: Chosen, quiet: bool, configuration: Configuration | None = None) -> Iterator[CodeVQA]:
    """Opens an engine, saying how long it took; ``configuration`` is :func:`check_choice`'s, if it was asked."""
    from ..presets.assembly import names_of
    from ..presets.presets import preset

    configuration = configuration or check_choice(choice, quiet)
    if not quiet:
        chosen, names = preset(configuration.preset), names_of(configuration).values()
        about = chosen.about if chosen.parts == configuration.parts else ", ".join(dict.fromkeys(filter(None, names)))
        warn(f"loading {choice.preset} ({about}) ...")
        begin_line("loading models")
    started = time.perf_counter()
    from ..engine.codevqa import CodeVQA

    with CodeVQA.from_configuration(configuration) as vqa:
        if not quiet:
            warn(f"ready in {time.perf_counter() - started:.1f} s")
        yield vqa


def check_choice(choice: Chosen, quiet: bool) -> Configuration:
    """Returns what was chosen, all of it fetched. A mistake is told before anything heavy is imported, or fetched."""
    from ..presets.assembly import check_server, prompt_sets, whole
    from ..presets.checkpoints import fetch
    from ..presets.presets import preset

    configuration = choice.configure()
    named = preset(configuration.preset)
    prompt_sets(named, configuration.settings.prompts)
    if quiet:
        hush()
    fetch(whole(configuration).parts.values(), tell=(lambda line: None) if quiet else warn, preset=choice.preset)
    check_server(configuration)
    return configuration


def import_ahead() -> None:
    """Begins to import what every engine needs, in a thread: while somebody types, nobody waits for it."""
    names = ("codevqa.engine.codevqa", "codevqa.models.blip", "codevqa.models.causal_lm")
    threading.Thread(target=lambda: [import_module(name) for name in names]).start()


def hush() -> None:
    """Keeps whatever the libraries say off standard error, bars of downloads among it."""
    import logging
    import warnings

    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    warnings.simplefilter("ignore")
    for library in ("huggingface_hub", "sentence_transformers", "torch", "transformers"):
        logging.getLogger(library).setLevel(logging.CRITICAL)


# -- answers -----------------------------------------------------------------------------------------------------------


def print_answer(answer: Answer, *, json: object = None, quiet: bool) -> None:
    """Prints the answer on standard output, or ``json`` in its place; how it was found on standard error."""
    if answer.fallback and answer.error is not None and not quiet:
        instead = "the vision-language model" if answer.trace.baseline[0].kind == "eyes" else "plain PnP-VQA"
        warn(f"the program failed ({answer.error.message}); {instead} answered instead")
    print_warnings(answer)
    if json is not None:
        print_json(json)
        return
    if not quiet:
        if answer.program is not None:
            print_text(answer.program.source, error=True)
        print_text(*(f"  {call}  ({call.seconds:.2f} s)" for call in answer.trace.calls[:CALLS]), error=True)
        if len(answer.trace.calls) > CALLS:
            print_text(f"  and {len(answer.trace.calls) - CALLS:,} more calls", error=True)
        print_printed(answer)
        if answer.in_parts:
            print_text(f"  {answer.in_parts}", error=True)
        sure = "" if answer.confidence is None else f", confidence {100 * answer.confidence:.0f} %"
        print_text(f"  {answer.seconds:.2f} s in all{sure}", error=True)
    print_text(answer.text)


def print_warnings(answer: Answer) -> None:
    """Says why an answer is not to be relied on."""
    for warning in answer.warnings:
        warn(warning.message)


def print_printed(answer: Answer) -> None:
    """Prints on standard error what the program printed, as far as it came."""
    print_text(*(f"  printed: {line}" for line in answer.trace.printed.splitlines()), error=True)


def check_place(trace: Path | None) -> None:
    """Checks, before any model is loaded, that a page can be written, and that its name is not that of a picture."""
    if trace is None or trace.is_dir():
        return
    if trace.suffix not in (".html", ".htm"):
        raise InputError(
            f"The trace {str(trace)!r} is a web page.", hint="Give a folder, or a name that ends in .html."
        )
    if not trace.parent.is_dir():
        raise InputError(f"There is no folder {str(trace.parent)!r} for the trace.", hint="Make it, or give another.")


def write_trace(answer: Answer, trace: Path | None, quiet: bool) -> None:
    """Writes the page of an answer, where one is wanted."""
    if trace is not None:
        place = answer.save_html(trace)
        if not quiet:
            warn(f"trace written to {place}")


# -- progress ----------------------------------------------------------------------------------------------------------


class Bar:
    """Shows how far a run is: one line that changes on a terminal, else a line now and then.

    Call it with each new status, in a ``with`` block.

    Args:
        quiet: show nothing.
        every: seconds between lines where standard error is no terminal.
    """

    def __init__(self, quiet: bool = False, every: float = 10.0) -> None:
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.pause = 0.1 if self.live else every
        self._last: Status | None = None
        self._shown = time.monotonic() if not self.live else 0.0
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __call__(self, status: Status) -> None:
        """Shows a status, unless the one before was shown a moment ago."""
        self._last = status
        if time.monotonic() - self._shown >= self.pause:
            self._show(status)

    def __enter__(self) -> Bar:
        if not self.quiet:
            begin_line("answering")
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watcher.join()
        end_line()
        if self._last is not None:
            self._show(self._last, end="\n")

    def _watch(self) -> None:
        """Shows what a model waits for, as soon as it does."""
        shown = ""
        while not self._over.wait(_LOOK_S):
            text = current()
            if text != shown and (text or self.live):
                self._print(text or (line(self._last) if self._last is not None else ""))
            shown = text
        if shown and self.live:
            self._print("")

    def _show(self, status: Status, end: str = "") -> None:
        self._shown = time.monotonic()
        self._print(line(status), end)

    def _print(self, text: str, end: str = "") -> None:
        if self.quiet:
            return
        with self._guard:
            if self.live:
                end_line()
                replace_line(text, end)
            else:
                warn(text)


def print_figures(store: Store) -> Summary:
    """Prints a run's figures, and returns them."""
    from ..eval.report.reading import summary_of
    from ..eval.report.table import summary_lines

    summary = summary_of(store)
    print_text(*summary_lines(store.info, summary, store.pace()))
    return summary


def line(status: Status) -> str:
    """Returns a status as one line."""
    of = "" if status.total is None else f" of {status.total:,}"
    share = "" if not status.total else f" ({status.examples / status.total:.1%})"
    parts = [f"{status.examples:,}{of} questions{share}", f"{status.rate:.2f}/s"]
    if status.seconds_left is not None:
        left, taken = (timedelta(seconds=round(seconds)) for seconds in (status.seconds_left, status.seconds))
        parts.append(f"{left} left" if status.examples < (status.total or 0) else f"took {taken}")
    if status.skipped:
        parts.append(f"{status.skipped:,} done before")
    if status.fallbacks:
        parts.append(f"{status.fallbacks:,} {'fallback' if status.fallbacks == 1 else 'fallbacks'}")
    if status.unanswered:
        parts.append(f"{status.unanswered:,} unanswered")
    return ", ".join(parts)
