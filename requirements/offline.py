"""Asks the installed ``codevqa`` about a shipped picture; ends with 1 on a wrong answer and on a look for a network."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
from importlib.resources import files
from pathlib import Path

NETWORK = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"}


def main() -> None:
    """Runs the command in this process, where every way out is closed."""
    tried: list[str] = []

    def refuse(event: str, args: tuple[object, ...]) -> None:
        if event in NETWORK:
            tried.append(f"{event} {args[1:]}")
            raise ConnectionRefusedError(event)

    sys.addaudithook(refuse)
    command = str(Path(sys.executable).with_name("codevqa"))
    picture = str(files("codevqa.demo").joinpath("pictures", "harbor.png"))
    sys.argv = [command, "ask", picture, "-q", "What color is the flag?"]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        runpy.run_path(command, run_name="__main__")
    answer, home = said.getvalue().strip(), Path(sys.modules["codevqa"].__file__ or "").parent
    print(f"{home} answers {answer!r}, expected 'red'; asked the network for {tried or 'nothing'}")
    sys.exit(answer != "red" or bool(tried))


if __name__ == "__main__":
    main()
