"""``codevqa ask`` without a question: one after another, as they are typed, about pictures that may change."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import CodeVQAError, InputError
from .terminal import check_place, print_answer, source, warn, write_trace

if TYPE_CHECKING:
    from ..core.answer import Answer
    from ..core.images import Picture
    from ..engine.codevqa import CodeVQA
    from ..engine.request import AskOptions

_PROMPT = "codevqa> "
_HELP = """\
Type a question, or
  :open FILE...  ask about other pictures
  :trace FILE    write the page of the last answer, with its program
  :quit          end; Ctrl-D too. Ctrl-C ends a question."""


@dataclass
class Conversation:
    """Questions from standard input, a line each, and commands that begin with a colon."""

    vqa: CodeVQA
    pictures: tuple[Picture, ...]
    options: AskOptions
    trace: Path | None = None
    json: bool = False
    evidence: bool = False
    quiet: bool = False
    last: Answer | None = None
    failed: bool = False

    def hold(self) -> int:
        """Answers until the input ends, or ``:quit``.

        Returns:
            The exit status: 1 where a line of a script failed. Who types has seen it.

        Raises:
            InputError: a script says nothing: a question was forgotten.
        """
        typed, told = sys.stdin.isatty(), False
        if typed and not self.quiet:
            print(_HELP, file=sys.stderr, flush=True)
        with suppress(ImportError):  # Windows
            import readline  # noqa: F401 - it lets input() edit a line, and bring back those before it
        while (line := _typed() if typed else sys.stdin.readline() or None) is not None:
            try:
                told |= bool(line.strip())
                if line.strip() and not self._obey(line.strip()):
                    break
            except KeyboardInterrupt:
                if not typed:
                    raise
                warn("interrupted")
        if not (typed or told):
            raise InputError("No question was given.", hint="Give -q QUESTION, or one question on each line.")
        return int(self.failed and not typed)

    def _obey(self, line: str) -> bool:
        """Does what a line says; returns whether to go on."""
        from ..core.images import load_pictures

        word, _, rest = line.partition(" ")
        try:
            match word:
                case ":quit":
                    return False
                case ":help":
                    print(_HELP, file=sys.stderr, flush=True)
                case ":open":
                    self.pictures = load_pictures([source(one) for one in _words(rest)])
                case ":trace":
                    if self.last is None:
                        raise InputError("Nothing has been answered yet.", hint="Ask something first.")
                    file = Path(*_words(rest, 1))
                    check_place(file)
                    write_trace(self.last, file, self.quiet)
                case _ if word.startswith(":"):
                    raise InputError(f"No command {word}.", hint=":help lists them.")
                case _:
                    self.last = self.vqa.ask(self.pictures, line, **self.options)
                    print_answer(self.last, json=self.json, evidence=self.evidence, quiet=self.quiet)
                    sys.stdout.flush()
                    write_trace(self.last, self.trace, self.quiet)
        except CodeVQAError as error:
            self.failed = True
            warn(str(error))
        return True


def _typed() -> str | None:
    """Returns the next line that is typed at a terminal, None at the end."""
    while True:
        try:
            if sys.stdout.isatty():
                return input(_PROMPT)
            print(_PROMPT, end="", file=sys.stderr, flush=True)  # standard output is for answers
            return sys.stdin.readline() or None
        except EOFError:
            print(file=sys.stderr)
            return None
        except KeyboardInterrupt:  # leaves a line half typed
            print(file=sys.stderr)


def _words(text: str, wanted: int | None = None) -> list[str]:
    """Returns the files that a line names, quoted as in a shell."""
    try:
        words = [os.path.expanduser(word) for word in shlex.split(text)]  # noqa: PTH111 - Path would mend an address
    except ValueError as error:
        raise InputError(f"{text}: {error}.", hint="Close the quote.") from None
    if wanted is not None and len(words) != wanted:
        raise InputError(f"{len(words)} files were given.", hint=f"Give {wanted}.")
    return words
