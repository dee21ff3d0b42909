"""What runs in a Ray actor: one engine, asked example by example."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ... import __version__
from ...core.errors import CodeVQAError, ImageError, SetupError
from ..run.local import LocalAnswerer
from ..run.provenance import engine_info
from ..run.request import KeptEvidence
from ..run.run_info import RunInfo
from ..run.shared_pictures import SharedPictures
from ..task import Example, Job, Row

if TYPE_CHECKING:
    from ...engine.codevqa import CodeVQA

__all__ = ["SAME_PACKAGES", "ActorSetup", "Worker", "WorkerReply"]

SAME_PACKAGES = "Install the same packages on every machine."


@dataclass(frozen=True)
class ActorSetup:
    """What an actor needs to know before it is asked."""

    factory: Callable[[], CodeVQA]
    folder: str
    """Working directory, so that relative paths mean the same everywhere."""
    version: str
    machines: int
    """On how many there may be actors."""


@dataclass(frozen=True)
class WorkerReply:
    """What came of an example."""

    rows: list[Row]
    unread: str = ""
    """Why its pictures cannot be read here; empty where they can."""


class Worker:
    """One engine, as Ray runs it. What we know as an error is returned, for Ray would wrap it."""

    def __init__(self) -> None:
        self.engine: CodeVQA | None = None
        self.pictures = SharedPictures()

    async def place(self) -> str:
        """Returns the process's id, as soon as it has found room."""
        return str(os.getpid())

    async def start(self, setup: ActorSetup) -> RunInfo | CodeVQAError:
        """Makes the engine, and returns what runs are told apart by."""
        try:
            return await asyncio.to_thread(self._start, setup)
        except CodeVQAError as error:
            return error

    def _start(self, setup: ActorSetup) -> RunInfo:
        if setup.version != __version__:
            raise SetupError(
                f"{socket.gethostname()} has codevqa {__version__}, and {setup.version} asks.",
                hint=SAME_PACKAGES,
            )
        with suppress(OSError):  # another machine may not have it; then pictures with relative paths are missed
            os.chdir(setup.folder)
        # Threads that launch GPU work wait for those that compute for up to this long, five milliseconds else.
        sys.setswitchinterval(0.0005)
        self.engine = engine = setup.factory()
        calls = getattr(engine, "calls", None)
        if calls is not None and not calls.read_only and setup.machines > 1:
            raise SetupError(
                f"Calls are recorded on one machine, and Ray has {setup.machines}.",
                hint="Give one_machine, or leave out the record.",
            )
        return engine_info(engine)

    async def ask(
        self, example: Example, jobs: Sequence[Job], seeds: Sequence[int], evidence: KeptEvidence
    ) -> WorkerReply | CodeVQAError:
        """Answers an example as :class:`~codevqa.eval.run.local.LocalAnswerer` does."""
        assert self.engine is not None
        ask, unread = LocalAnswerer(self.engine, seeds, evidence, self.pictures), ""
        try:
            rows = await ask(example, jobs)
            if any(row.error == ImageError.__name__ for row in rows):  # its picture's, or a program's?
                await asyncio.to_thread(ask.pictures, example)
        except ImageError as error:
            unread = str(error)
        except CodeVQAError as error:
            return error
        return WorkerReply(rows, unread)

    async def close(self) -> None:
        """Ends the engine."""
        if self.engine is not None:
            await asyncio.to_thread(self.engine.close)
