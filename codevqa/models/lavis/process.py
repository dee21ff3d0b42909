"""LAVIS's process from this side: it is started anew where the last one died, hung or wrote nonsense."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ModelError, SetupError
from ..turn import Turn
from . import frames
from .frames import Array, Frame, FrameError, read_frame, write_frame

__all__ = ["LavisProcess"]

_LOADING = 3600.0
"""Seconds for imports and weights: the first time LAVIS fetches gigabytes."""


class _LostError(Exception):
    """A process is of no use any more; says why."""


class LavisProcess:
    """One model of LAVIS in a process of its own, which ends with this one, or when nobody holds this object.

    Args:
        python: the Python that runs it.
        script: what it serves: :mod:`.worker`.
        model: the first frame's head, which names the model.
        limit: seconds that an answer may take.

    Raises:
        SetupError: it does not start, or cannot load the model.
    """

    def __init__(self, python: Path, script: Path, model: Mapping[str, Any], *, limit: float) -> None:
        self._command = [str(python), "-E", "-s", frames.__file__, str(script)]
        self._model = model
        self._limit = limit
        self.turn = Turn(self._command)
        self._life: _Life | None = None
        self.described = self._started()[1]
        """What it says of its model."""

    @property
    def pid(self) -> int | None:
        """The process there is."""
        return self._life.process.pid if self._life else None

    def ask(self, do: str, head: Mapping[str, Any], arrays: Sequence[Array]) -> Frame:
        """Has one thing done.

        Raises:
            ModelError: the model failed, or its process died, hung or wrote nonsense.
            SetupError: there was no process left, and a new one does not start.
        """
        with self.turn:
            life = self._life
            if life is None or life.process.poll() is not None:
                life, _ = self._started()
            try:
                told, found = life.exchange({"do": do, **head}, arrays, self._limit)
            except _LostError as lost:
                raise ModelError(f"LAVIS's process {lost}.", hint="The next question gets a new one.") from lost
        if "error" in told:
            raise ModelError(f"LAVIS failed: {told['error']}.")
        return told, found

    def close(self) -> None:
        """Ends the process, once it has answered. The next call starts a new one."""
        with self.turn:
            if self._life is not None:
                self._life.end()

    def _started(self) -> tuple[_Life, dict[str, Any]]:
        self._life = None
        life = _Life(self._command)
        try:
            told, _ = life.exchange({"do": "load", **self._model}, (), _LOADING)
        except _LostError as lost:
            raise SetupError(f"LAVIS's process {lost}.", hint="See codevqa lavis.") from lost
        if "error" in told:
            life.end()
            raise SetupError(f"LAVIS cannot load {self._model.get('name')}: {told['error']}.")
        self._life = life
        return life, told


class _Life:
    """A process from its start to its end."""

    def __init__(self, command: Sequence[str]) -> None:
        # A file, since a pipe that nobody reads would block whoever warns much.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                # Else its threads keep cores busy while they wait, and hold up the models of this process.
                env={"OMP_WAIT_POLICY": "PASSIVE", **os.environ},
            )
        except OSError as error:
            self._said.close()
            raise SetupError(f"{command[0]} does not start: {error.strerror}.", hint="See codevqa lavis.") from error
        self.end = weakref.finalize(self, _end, self.process, self._said, os.getpid())
        """Ends the process, at the latest when this object goes."""

    def exchange(self, head: dict[str, Any], arrays: Sequence[Array], limit: float) -> Frame:
        """Writes a frame and reads the answer; after a failure the process has ended."""
        assert self.process.stdin and self.process.stdout
        late = threading.Event()
        timer = threading.Timer(limit, self._kill, [late])  # which ends reading and writing, on every system
        timer.start()
        try:
            write_frame(self.process.stdin, head, arrays)
            return read_frame(self.process.stdout)
        except FrameError as error:
            raise self._lost(f"wrote something else than an answer: {error}") from error
        except (OSError, EOFError) as error:
            why = f"gave no answer within {limit:g} s" if late.is_set() else self._ending()
            raise self._lost(why) from error
        except BaseException:
            self.end()  # else an answer that nobody waits for would be the next one's
            raise
        finally:
            timer.cancel()

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self.process.kill()

    def _lost(self, why: str) -> _LostError:
        self.end()
        return _LostError(why)

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        status = self.process.returncode
        if status is None:
            return "closed its end of the pipe"
        self._said.seek(max(0, self._said.seek(0, 2) - 4096))
        lines = self._said.read().decode(errors="replace").split("\n")
        last = next((": " + " ".join(line.split())[:300] for line in reversed(lines) if line.strip()), "")
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}{last}"


def _end(process: subprocess.Popen[bytes], said: Any, parent: int) -> None:
    if os.getpid() == parent:  # and not a fork of it
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, said):
        with contextlib.suppress(OSError):  # what was not written yet has no reader
            if stream:
                stream.close()
