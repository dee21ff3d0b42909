"""What passes between this process and LAVIS's: a head in JSON, and arrays, as one npz file behind its length.

LAVIS's process runs this file without the package: ``python -E -s messages.py SCRIPT``. So it needs NumPy and nothing
else. Nothing in a message is run or unpickled.
"""

from __future__ import annotations

import io
import json
import os
import queue
import runpy
import struct
import sys
import threading
import zipfile
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Message = tuple[dict[str, Any], list[Array]]

_LENGTH = struct.Struct("<Q")
_MOST = 4 << 30


class MessageError(Exception):
    """The bytes that were read are not a message."""


def write_message(stream: IO[bytes], head: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Writes one message."""
    buffer = io.BytesIO()
    np.savez(buffer, np.frombuffer(json.dumps(head).encode(), np.uint8), *arrays)
    stream.write(_LENGTH.pack(buffer.tell()))
    stream.write(buffer.getbuffer())
    stream.flush()


def read_message(stream: IO[bytes]) -> Message:
    """Reads one message.

    Raises:
        EOFError: the stream ended.
        MessageError: something else was on it.
    """
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size))
    if length > _MOST:
        raise MessageError(f"a message of {length} bytes")
    try:
        with np.load(io.BytesIO(_exactly(stream, length)), allow_pickle=False) as file:
            first, *arrays = (file[name] for name in file.files)
        return dict(json.loads(first.tobytes())), arrays
    except (ValueError, TypeError, zipfile.BadZipFile) as error:
        raise MessageError(f"no message: {error}") from error


def serve(script: str) -> None:
    """Answers the messages on standard input by a script's ``answer``, until the process that writes them has gone.

    Answers leave by what was standard output; what the script and its libraries print goes to standard error. An error
    of ``answer`` travels as one line.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    answer = runpy.run_path(script)["answer"]
    while True:
        message = asked.get()
        try:
            head, arrays = answer(*message)
        except Exception as error:  # noqa: BLE001 - the other side says whose fault it is
            head, arrays = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}, []
        write_message(replies, head, arrays)


def _listen(asked: queue.SimpleQueue[Message]) -> None:
    """Hands messages on. Its own thread, so that even a worker that hangs ends with its parent."""
    requests = os.fdopen(os.dup(0), "rb")  # at its end Python would wait for a thread that reads sys.stdin
    try:
        while True:
            asked.put(read_message(requests))
    except (EOFError, MessageError, OSError):
        os._exit(0)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


if __name__ == "__main__":
    sys.path.pop(0)  # where files of this folder could be taken for a library's
    serve(sys.argv[1])
