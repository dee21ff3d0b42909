"""What each visitor asked before: a few questions, for a while, found by a word that only their browser knows."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from .limits import DemoLimits
from .live import PageUpdate

__all__ = ["Histories", "Past"]

PAGE = "codevqa-answer.html"
VIEW = "view.json"
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
    def page(self) -> str | None:
        """The page to download; None where it is no longer there."""
        path = self.folder / PAGE
        return str(path) if path.is_file() else None

    def view(self) -> PageUpdate | None:
        """Returns what the page showed; None where it is no longer there."""
        try:
            return PageUpdate(**json.loads((self.folder / VIEW).read_text("utf-8")))
        except FileNotFoundError:  # deleted to make room for uploads
            return None


class Histories:
    """What all visitors asked before. Files lie in the folder of uploads, and count among them.

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
        self._drop_old()
        return [past for owner, past in reversed(self._all.values()) if owner == token]

    def find(self, token: str, id: str) -> Past | None:
        """Returns one question of a visitor's own; None where it is no longer kept, or somebody else's."""
        return next((past for past in self.of(token) if past.id == id), None)

    def write(self, view: PageUpdate, page: str) -> tuple[Path, int]:
        """Writes what was shown, and the page to download, where nobody guesses; returns the folder and its size."""
        folder = self._files / "pages" / secrets.token_hex(16)
        folder.mkdir(parents=True)
        shown = json.dumps(asdict(view))
        (folder / PAGE).write_text(page, "utf-8")
        (folder / VIEW).write_text(shown, "utf-8")
        return folder, len(page) + len(shown)

    def add(self, token: str, question: str, answer: str, pictures: tuple[str, ...], written: tuple[Path, int]) -> Past:
        """Keeps one question, and lets go of the oldest beyond the limits."""
        past = Past(secrets.token_urlsafe(16), question, answer, pictures, *written, self._clock())
        self._all[past.id] = (token, past)
        for surplus in self.of(token)[self._limits.history :]:
            self._drop(surplus.id)
        while len(self._all) > 1 and sum(one.size for _, one in self._all.values()) > self._limits.history_bytes:
            self._drop(next(iter(self._all)))
        return past

    def forget(self, token: str) -> None:
        """Forgets what a visitor asked."""
        for past in self.of(token):
            self._drop(past.id)

    def _drop_old(self) -> None:
        before = self._clock() - self._limits.keep_seconds
        for id in [id for id, (_, past) in self._all.items() if past.since < before]:
            self._drop(id)

    def _drop(self, id: str) -> None:
        _, past = self._all.pop(id)
        shutil.rmtree(past.folder, ignore_errors=True)
