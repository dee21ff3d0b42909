"""What passes between this process and LAVIS's: frames of a head in JSON, and arrays as they lie in memory.

This file is also what that process runs, without the package: ``python -E -s frames.py SCRIPT``. So it needs NumPy and
nothing else. Nothing that a frame holds is run or unpickled.
"""

from __future__ import annotations

import json
import math
import os
import queue
import runpy
import struct
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Frame = tuple[dict[str, Any], list[Array]]

_OPENING = struct.Struct("<8sIQ")
_MARK = b"codevqa\1"
_TYPES = ("|u1", "<f4", "<i8")
_MOST_HEAD, _MOST_ARRAYS = 16 << 20, 4 << 30


class FrameError(Exception):
    """What was read is no frame."""


def write_frame(stream: IO[bytes], head: dict[str, Any], arrays: Sequence[Array] = ()) -> None:
    """Writes one frame."""
    shapes = [[array.dtype.str, list(array.shape)] for array in arrays]
    text = json.dumps({"head": head, "arrays": shapes}).encode()
    stream.write(_OPENING.pack(_MARK, len(text), sum(array.nbytes for array in arrays)))
    stream.write(text)
    for array in arrays:
        stream.write(array.tobytes())
    stream.flush()


def read_frame(stream: IO[bytes]) -> Frame:
    """Reads one frame.

    Raises:
        EOFError: the stream ended.
        FrameError: something else was on it.
    """
    mark, head_length, length = _OPENING.unpack(_exactly(stream, _OPENING.size))
    if mark != _MARK or head_length > _MOST_HEAD or length > _MOST_ARRAYS:
        raise FrameError(f"a frame opens with {mark!r}")
    try:
        text = json.loads(_exactly(stream, head_length))
        head, shapes = dict(text["head"]), [(str(kind), tuple(map(int, shape))) for kind, shape in text["arrays"]]
    except (ValueError, KeyError, TypeError) as error:
        raise FrameError("a frame's head is not JSON as agreed") from error
    if any(kind not in _TYPES or min(shape, default=0) < 0 for kind, shape in shapes):
        raise FrameError(f"a frame has arrays {shapes}")
    if sum(np.dtype(kind).itemsize * math.prod(shape) for kind, shape in shapes) != length:
        raise FrameError(f"a frame's arrays {shapes} don't take {length} bytes")
    return head, [_array(stream, kind, shape) for kind, shape in shapes]


def serve(script: str) -> None:
    """Answers the frames on standard input by a script's ``answer``, until the process that writes them has gone.

    Answers leave by what was standard output; what the script and its libraries print goes to standard error. Whatever
    ``answer`` raises travels as one line of words.
    """
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    answer = runpy.run_path(script)["answer"]
    while True:
        frame = asked.get()
        try:
            head, arrays = answer(*frame)
        except Exception as error:  # noqa: BLE001 - the other side says whose fault it is
            head, arrays = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:500]}, []
        write_frame(replies, head, arrays)


def _listen(asked: queue.SimpleQueue[Frame]) -> None:
    """Hands frames on. Its own thread, so that even a worker that hangs ends with its parent."""
    requests = os.fdopen(os.dup(0), "rb")  # at its end Python would wait for a thread that reads sys.stdin
    try:
        while True:
            asked.put(read_frame(requests))
    except (EOFError, FrameError, OSError):
        os._exit(0)


def _array(stream: IO[bytes], kind: str, shape: tuple[int, ...]) -> Array:
    size = np.dtype(kind).itemsize * math.prod(shape)
    return np.frombuffer(bytearray(_exactly(stream, size)), kind).reshape(shape)


def _exactly(stream: IO[bytes], count: int) -> bytes:
    found = stream.read(count)
    if len(found) < count:
        raise EOFError
    return found


if __name__ == "__main__":
    sys.path.pop(0)  # where files of this folder could be taken for a library's
    serve(sys.argv[1])
