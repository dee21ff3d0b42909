"""Tells which machines a Python process talks to: every look-up, connection and open port of its own, from its start.

An audit hook sees what the ``socket`` module does, whoever calls it, and cannot be taken off again. Native code that
opens sockets by itself is not seen; none of the tested processes has any but the event loops and ZeroMQ, on loopback.
"""

import os
from collections.abc import Mapping
from pathlib import Path

LOG = "TRAFFIC_LOG"
LOOPBACK = ("127.", "::1", "localhost", "[::1]")

HOOK = '''
"""Imported by the interpreter at its start."""
import os, sys

def _note(event, args):
    if event in ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"):
        where = args[1]
        if not isinstance(where, tuple):  # a Unix socket, or a connected one
            return
        host = where[0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = args[0]
    else:
        return
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    line = "%s %s %s\\n" % (os.getpid(), event, host)
    descriptor = os.open(os.environ["TRAFFIC_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)

sys.addaudithook(_note)
'''


def watched(log: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment whose Python processes, and theirs, write to ``log`` whom they talk to."""
    folder = log.parent / "hook"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    path = [str(folder), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path), LOG: str(log)}


def seen(log: Path) -> list[str]:
    """Returns ``EVENT HOST`` for everything that was noted."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [line.split(" ", 1)[1] for line in lines]


def outside(log: Path) -> list[str]:
    """Returns what did not stay on this machine, or was open to other machines."""
    return [line for line in seen(log) if not line.split(" ", 1)[1].startswith(LOOPBACK)]
