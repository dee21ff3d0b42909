"""``codevqa ask`` without a question: one after another, as they are typed, about pictures that may change."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import CodeVQAError, InputError
from .printing import end_line, print_text
from .terminal import check_place, warn, write_trace

if TYPE_CHECKING:
    from ..collections.collection import Pictures
    from ..core.answer import Answer

PROMPT = "codevqa> "
HELP = """\
Type a question, or
  :open FILE...  ask about other pictures, or a folder of them
  :trace FILE    write the page of the last answer, with its program
  :quit          end; Ctrl-D too. Ctrl-C ends a question."""


class Conversation:
    """Questions from standard input, a line each, and commands that begin with a colon.

    Args:
        pictures: what the first questions are about.
        ask: answers a question about pictures, and shows the answer.
        quiet: say nothing but answers and errors.
    """

    def __init__(self, pictures: Pictures, ask: Callable[[Pictures, str], Answer], quiet: bool) -> None:
        self.pictures, self.ask, self.quiet = pictures, ask, quiet
        self.last: Answer | None = None

    def run(self) -> int:
        """Answers until the input ends, or ``:quit``.

        Returns:
            The exit status: 1 where a line of a script failed. Who types has seen it.

        Raises:
            InputError: a script says nothing: a question was forgotten.
        """
        typed, explained, failed = sys.stdin.isatty(), False, False
        end_line()
        if typed and not self.quiet:
            print_text(HELP, error=True)
        with suppress(ImportError):  # Windows
            import readline  # noqa: F401 - it lets input() edit a line, and bring back those before it
        while (line := _read_typed() if typed else sys.stdin.readline() or None) is not None:
            line = line.strip()
            if line == ":quit":
                return int(failed and not typed)
            explained |= bool(line)
            try:
                if line:
                    self._obey(line)
            except CodeVQAError as error:
                failed = True
                warn(str(error))
            except KeyboardInterrupt:
                if not typed:
                    raise
                warn("interrupted")
        if not (typed or explained):
            raise InputError("No question was given.", hint="Give -q QUESTION, or one question on each line.")
        return int(failed and not typed)

    def _obey(self, line: str) -> None:
        """Does what a line says."""
        match line.partition(" "):
            case ":help", _, _:
                print_text(HELP, error=True)
            case ":open", _, files:
                from .collections import gather_pictures

                self.pictures = gather_pictures(_split_files(files), False, None, self.quiet)
            case ":trace", _, file:
                if self.last is None:
                    raise InputError("Nothing has been answered yet.", hint="Ask something first.")
                page = Path(*_split_files(file, 1))
                check_place(page)
                write_trace(self.last, page, self.quiet)
            case word, _, _ if word.startswith(":"):
                raise InputError(f"No command {word}.", hint=":help lists them.")
            case _:
                if word := pointing(line):
                    raise InputError(
                        f"Each question stands alone: {word!r} is not clear.",
                        hint=f"Name the thing, such as 'the dog' for {word!r}.",
                    )
                self.last = self.ask(self.pictures, line)


def pointing(question: str) -> str:
    """Returns a word near the start that points to an earlier question, or "there" at the end; else an empty text."""
    words = re.findall(r"[\w']+", question.lower())
    first = next((word for word in words[:5] if word in ("it", "they", "them")), "")
    last = words[-1:] == ["there"] and words[-2:-1] not in (["is"], ["are"])
    return first or ("there" if last else "")


def _read_typed() -> str | None:
    """Returns the next line that is typed at a terminal, None at the end."""
    while True:
        try:
            if sys.stdout.isatty():
                return input(PROMPT)
            print_text(PROMPT, end="", error=True)  # standard output is for answers
            return sys.stdin.readline() or None
        except EOFError:
            print_text("", error=True)
            return None
        except KeyboardInterrupt:  # leaves a line half typed
            print_text("", error=True)


def _split_files(text: str, wanted: int | None = None) -> list[str]:
    """Returns the files that a line names, quoted as in a shell."""
    try:
        words = [os.path.expanduser(word) for word in shlex.split(text)]  # noqa: PTH111 - Path would mend an address
    except ValueError as error:
        raise InputError(f"{text}: {error}.", hint="Close the quote.") from None
    if wanted is not None and len(words) != wanted:
        raise InputError(f"{len(words)} files were given.", hint=f"Give {wanted}.")
    return words
