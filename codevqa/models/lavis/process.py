"""LAVIS's environment, and its process as seen from this side.

LAVIS needs a transformers from before 4.27, which this package cannot use. So it has an environment of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.errors import ModelError, SetupError
from ..request_queue import ModelLock
from . import messages
from .messages import Array, Message, MessageError

VARIABLE = "CODEVQA_LAVIS"
"""Names the environment's folder. Any environment with LAVIS in it will do."""
_LOADING = 3600.0
"""Seconds for imports and weights: the first time LAVIS fetches gigabytes."""


def python_of(folder: Path | None = None) -> Path:
    """Returns the Python of LAVIS's environment: of a folder, of CODEVQA_LAVIS, or of codevqa/lavis in the cache."""
    if folder is None:
        path = os.environ.get(VARIABLE)
        cache = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
        default = (Path(cache) if cache else Path.home() / ".cache") / "codevqa" / "lavis"
        folder = Path(path).expanduser() if path else default
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


class LavisProcess:
    """One model of LAVIS in a process of its own, which ends with this one, or when nobody holds this object.

    A process that died, hung or wrote nonsense fails one call. The next call starts another.

    Args:
        python: the Python that runs it.
        script: what it serves: :mod:`.worker`.
        model: the first message's head, which names the model.
        limit: seconds that an answer may take.

    Raises:
        SetupError: it does not start, or cannot load the model.
    """

    def __init__(self, python: Path, script: Path, model: Mapping[str, Any], *, limit: float) -> None:
        self._command = [str(python), "-E", "-s", messages.__file__, str(script)]
        self._model = model
        self._limit = limit
        self.turn = ModelLock(self._command)
        self.described = self._start()

    @property
    def pid(self) -> int:
        """The last process that was started."""
        return self._process.pid

    def ask(self, do: str, head: Mapping[str, Any], arrays: Sequence[Array]) -> Message:
        """Has one thing done.

        Raises:
            ModelError: the model failed, or its process died, hung or wrote nonsense.
            SetupError: there was no process left, and a new one does not start.
        """
        with self.turn:
            if self._process.poll() is not None:
                self._start()
            return self._exchange({"do": do, **head}, arrays, self._limit)

    def close(self) -> None:
        """Ends the process, once it has answered. The next call starts a new one."""
        with self.turn:
            self._end()

    def _start(self) -> dict[str, Any]:
        # A file, since a pipe that nobody reads would block a process that warns much.
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        # A wait that spins would keep cores busy, and hold up the models of this process.
        environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ}
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=environment
            )
        except OSError as error:
            self._stderr.close()
            raise SetupError(
                f"{self._command[0]} does not start: {error.strerror}.", hint=f"See {VARIABLE}."
            ) from error
        self._end = weakref.finalize(self, _end_process, self._process, self._stderr, os.getpid())
        try:
            return self._exchange({"do": "load", **self._model}, (), _LOADING)[0]
        except ModelError as error:
            self._end()
            raise SetupError(f"LAVIS cannot load {self._model.get('name')}: {error}") from error

    def _exchange(self, head: dict[str, Any], arrays: Sequence[Array], limit: float) -> Message:
        """Writes a message and reads the answer; a process that gives none is ended."""
        late = threading.Event()
        timer = threading.Timer(limit, self._kill, [late])  # which ends reading and writing, on every system
        timer.start()
        assert self._process.stdin and self._process.stdout
        try:
            messages.write_message(self._process.stdin, head, arrays)
            reply, results = messages.read_message(self._process.stdout)
        except (MessageError, OSError, EOFError) as error:
            if isinstance(error, MessageError):
                why = "wrote something else than an answer"
            else:
                why = f"gave no answer within {limit:g} s" if late.is_set() else self._ending()
            self._end()
            raise ModelError(f"LAVIS's process {why}.") from error
        except BaseException:
            self._end()  # else an answer that nobody waits for would be the next one's
            raise
        finally:
            timer.cancel()
        if "error" in reply:
            raise ModelError(f"LAVIS failed: {reply['error']}.")
        return reply, results

    def _kill(self, late: threading.Event) -> None:
        late.set()
        self._process.kill()

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        status = self._process.returncode
        if status is None:
            return "closed its end of the pipe"
        self._stderr.seek(max(0, self._stderr.seek(0, 2) - 4096))
        last = self._stderr.read().decode(errors="replace").strip().rpartition("\n")[2][:300]
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}: {last}"


def _end_process(process: subprocess.Popen[bytes], log: Any, parent: int) -> None:
    if os.getpid() == parent:  # and not a fork of it
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, log):
        with contextlib.suppress(OSError):  # what was not written yet has no reader
            if stream:
                stream.close()
