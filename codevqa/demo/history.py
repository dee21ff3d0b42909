"""What each visitor asked before: a few questions, for a while, found by a word that only their browser knows."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.answer import Answer
from .limits import DemoLimits
from .live import PageUpdate

__all__ = ["Histories", "Past"]

_TOKEN = re.compile(r"[\w-]{43}", re.ASCII)


@dataclass(frozen=True)
class Past:
    """One question that was answered."""

    id: str
    question: str
    answer: str
    pictures: tuple[str, ...]
    """The uploads it is about; they may be gone."""
    folder: Path
    """What the page showed, and the page to download."""
    size: int
    since: float

    @property
    def page(self) -> str:
        """The page to download."""
        return str(self.folder / "codevqa-answer.html")

    def view(self) -> PageUpdate:
        """Returns what the page showed."""
        return PageUpdate(**json.loads((self.folder / "view.json").read_text("utf-8")))


class Histories:
    """What all visitors asked before. Files lie in the folder of uploads.

    Args:
        files: the folder of uploads.
        limits: how many, for how long, and how much.
        clock: seconds, ever rising.
    """

    def __init__(self, files: Path, limits: DemoLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._files, self._limits, self._clock = files, limits, clock
        self._all: dict[str, tuple[str, Past]] = {}
        """By id, oldest first, each with whose it is."""

    @staticmethod
    def token(given: object) -> str:
        """Returns a visitor's word: the one they gave, or a new one where that is none of ours."""
        return given if isinstance(given, str) and _TOKEN.fullmatch(given) else secrets.token_urlsafe(32)

    def of(self, token: str) -> list[Past]:
        """Returns what a visitor asked, newest first."""
        self._drop_surplus()
        return [past for owner, past in reversed(self._all.values()) if owner == token]

    def find(self, token: str, id: str) -> Past | None:
        """Returns one question of a visitor's own; None where it is no longer kept, or somebody else's."""
        return next((past for past in self.of(token) if past.id == id), None)

    def add(self, token: str, answer: Answer, pictures: Sequence[str], view: PageUpdate, page: str) -> Past:
        """Keeps one question where nobody guesses, and lets go of the oldest beyond the limits.

        Args:
            token: whose it is.
            answer: what came of it.
            pictures: the uploads it is about.
            view: what was shown.
            page: the page to download.

        Raises:
            OSError: the disk is full.
        """
        id = secrets.token_hex(16)
        shown, folder = json.dumps(asdict(view)), self._files / "pages" / id
        folder.mkdir(parents=True)
        (folder / "codevqa-answer.html").write_text(page, "utf-8")
        (folder / "view.json").write_text(shown, "utf-8")
        past = Past(id, answer.question, answer.text, tuple(pictures), folder, len(page) + len(shown), self._clock())
        self._all[id] = (token, past)
        for surplus in self.of(token)[self._limits.history :]:
            self._drop(surplus.id)
        return past

    def forget(self, token: str) -> None:
        """Forgets what a visitor asked."""
        for past in self.of(token):
            self._drop(past.id)

    def _drop_surplus(self) -> None:
        """Drops what is too old, and the oldest while all together are too large."""
        before = self._clock() - self._limits.keep_seconds
        size = sum(past.size for _, past in self._all.values())
        for _, past in list(self._all.values()):
            if past.since >= before and size <= self._limits.history_bytes:
                break
            size -= past.size
            self._drop(past.id)

    def _drop(self, id: str) -> None:
        _, past = self._all.pop(id)
        shutil.rmtree(past.folder, ignore_errors=True)
