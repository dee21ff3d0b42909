"""Runs probes where nothing holds them: each by ``exec`` in a process of its own, beside what a host has.

A probe that fails here too proves nothing of what refuses it elsewhere. Reads ``{name: source}`` from standard input,
writes ``{name: how it ended}``: ``answered`` where it left a plain answer, ``ended`` where it ended the process.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from sandbox_kit import IMAGES, PRIMITIVES

import codevqa
from codevqa.primitives import Image
from codevqa.sandbox.boundary import answer_value

SECRET = "a name of the host"
HOST = {"codevqa": codevqa, "SECRET": SECRET, "Image": Image, "images": IMAGES}


def offered(function: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(function)
    def checked(*args: object) -> object:
        try:
            return function(**PRIMITIVES.bind("query", args, {}))
        except TypeError as error:
            raise TypeError("query() cannot be called so") from error

    return checked


@offered
def query(img: Image, question: str) -> str:
    """Stands for the primitive as a host without a sandbox would offer it."""
    return question


def ending(source: str) -> str:
    """Runs a probe and says how it ended."""
    space: dict[str, Any] = {**HOST, "query": query}
    try:
        exec(source, space)
        answer_value(space["answer"])
    except Exception as error:  # noqa: BLE001 -- whatever a probe raises
        return f"{type(error).__name__}: {error}"
    return "answered"


def apart(work: Callable[[str], str], source: str) -> str:
    """Returns what work says, done in a child: a probe may end its process or spoil it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        typed, typing = os.pipe()
        os.write(typing, b"typed\n")
        os.close(typing)
        os.dup2(typed, 0)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- for as long as the child lives
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(1, 2)
        told = "ended"
        try:
            told = work(source)
        finally:
            os.write(writing, told.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


if __name__ == "__main__":
    probes = json.load(sys.stdin)
    json.dump({name: apart(ending, source) for name, source in probes.items()}, sys.stdout)
