"""A run served to this machine's browser while it goes on: its report's page, which asks here for what is new.

Nothing is kept but the figures: every request reads the run as it is then, in a thread of its own.
"""

from __future__ import annotations

import errno
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from ... import __version__
from ...core.errors import CodeVQAError, SetupError
from ..metrics.steps import StepJudge
from ..run.store import Store
from ..task import METHODS, EvalImage
from .cases import small_jpeg
from .html import figures_html, live_page, policy
from .report import build, check_graphs, figures_of, title_of
from .rows import Listing, Question, as_json, detail, head, line, part
from .run_metric import metric_of

__all__ = ["PORT", "LiveRun", "serve"]

PORT = 7870
"""Where a run is served where nothing else is said; the next free one up to ten further."""
MOST = 2_000
"""Rows of one reply at most."""
REST = 5.0
"""Seconds between two looks for new figures at least; ten times as long as they took, for the run needs the machine."""
HOSTS = ("127.0.0.1", "localhost")

Reply = tuple[str, bytes]


class LiveRun:
    """What is served of a run.

    Args:
        path: the run.
        data: where the data set is now, if it was moved.
        scene_graphs: the file of scene graphs; None looks for it beside the questions.
        complete: whether the graphs list everything in their pictures.
        examples: questions of each kind to show in full.

    Raises:
        InputError: there is no run, or no such file of scene graphs.
    """

    def __init__(
        self,
        path: Path,
        *,
        data: Path | None = None,
        scene_graphs: Path | None = None,
        complete: bool = False,
        examples: int = 6,
    ) -> None:
        check_graphs(scene_graphs)
        with Store.open(path) as store:
            self.info = store.info
        self.metric = metric_of(self.info, data=data)
        self.path, self.data, self.scene_graphs, self.complete, self.examples = (
            path,
            data,
            scene_graphs,
            complete,
            examples,
        )
        self.figures = '<header><h1>No answers yet</h1><p><a href="#questions">All questions</a></p></header>'
        self.version = 0
        """Of the figures."""
        self.judge: StepJudge | None = None
        self._rows = 0

    def refresh(self) -> None:
        """Computes the figures again, if there are new rows.

        Raises:
            CodeVQAError: the run or its scene graphs are damaged.
        """
        with Store.open(self.path) as store:
            rows = sum(store.counts().values())
            if rows == self._rows:
                return
            found = figures_of(self.path.name, [store], self.data, self.scene_graphs, complete=self.complete)
            self.figures = figures_html(build([found], data=self.data, examples=self.examples))
        self.judge, self._rows = found.judge, rows
        self.version += 1

    def reply(self, path: str, asked: Mapping[str, str]) -> Reply | None:
        """Returns the kind and content of what is asked for; None where there is no such thing.

        Raises:
            CodeVQAError: the run is damaged.
        """
        if path == "/":
            page = live_page(title_of([self.info]), f"Served by codevqa {__version__}.")
            return "text/html; charset=utf-8", page.encode()
        if path == "/figures":
            return "text/html; charset=utf-8", self.figures.encode()
        with Store.open(self.path) as store:
            listing = Listing(self.path.name, store, self.metric, self.judge)
            if path == "/rows" and asked.get("after", "").isdecimal():
                return "application/json", as_json(self._news(listing, int(asked["after"])))
            question = _question(store, asked.get("id", ""))
            if question is None:
                return None
            if path == "/trace":
                return "application/json", as_json(detail(listing, question, _picture(question)))
            if path == "/picture" and asked.get("n", "").isdecimal():
                images = question[0].images[int(asked["n"]) :][:1]
                small = small_jpeg(images[0], self.data) if images else None
                return None if small is None else ("image/jpeg", small)
        return None

    def _news(self, listing: Listing, after: int) -> dict[str, Any]:
        """Returns what ``follow`` in ``rows.js`` reads: questions with rows since a mark, and how far the run is."""
        ids, mark = listing.store.since(after, MOST)
        questions = filter(None, (_question(listing.store, id) for id in ids))
        return {
            "head": head([listing]),
            "part": part(line(0, listing, question) for question in questions),
            "mark": mark,
            "more": mark - after >= MOST,
            "done": len(listing.store),
            "total": listing.store.info.questions or listing.store.info.limit,
            "graphs": len(listing.judge.graphs) if listing.judge else 0,
            "figures": self.version,
        }


def _question(store: Store, id: str) -> Question | None:
    example = store.example(id)
    rows = {method: row for method in METHODS if (row := store.row(id, method)) is not None}
    return None if example is None or not rows else (example, rows)


def _picture(question: Question) -> Callable[[int, EvalImage], str]:
    return lambda number, image: f"picture?id={quote(question[0].id, safe='')}&n={number}"


def serve(run: LiveRun, *, port: int | None = None, opened: Callable[[str], None], say: Callable[[str], None]) -> None:
    """Serves a run until interrupted.

    Args:
        run: the run.
        port: port of 127.0.0.1 to listen on, 0 for a free one; None takes 7870, or the next that is free.
        opened: told the address, once it is served.
        say: tells whoever started it what goes wrong.

    Raises:
        SetupError: the port is taken.
    """
    ended = threading.Event()

    def watch() -> None:
        rest = 0.0
        while not ended.wait(rest):
            began = time.monotonic()
            try:
                run.refresh()
            except CodeVQAError as error:
                say(str(error))
            rest = max(REST, 10 * (time.monotonic() - began))

    with _listening(run, port) as server:
        threading.Thread(target=watch, name="codevqa-figures", daemon=True).start()
        try:
            opened(f"http://127.0.0.1:{server.server_port}/")
            server.serve_forever()
        except KeyboardInterrupt:
            say("ended")
        finally:
            ended.set()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, run: LiveRun, port: int) -> None:
        self.run = run
        super().__init__((HOSTS[0], port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that left is no error
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    timeout = 60

    def do_GET(self) -> None:
        """Answers one request."""
        host = re.sub(r":\d+$", "", self.headers.get("Host", "").lower())
        asked = urlsplit(self.path)
        if host not in HOSTS:  # a page of somebody else's made its own name mean this machine
            self._send(403, ("text/plain; charset=utf-8", b"This server is not known by that name.\n"))
            return
        try:
            found = self.server.run.reply(asked.path, {name: one[-1] for name, one in parse_qs(asked.query).items()})
        except CodeVQAError as error:
            self._send(500, ("text/plain; charset=utf-8", str(error).encode()))
            return
        missing = ("text/plain; charset=utf-8", b"There is nothing here.\n")
        self._send(200 if found else 404, found or missing)

    def _send(self, status: int, reply: Reply) -> None:
        self.send_response(status)
        for name, value in (
            ("Content-Type", reply[0]),
            ("Content-Length", str(len(reply[1]))),
            ("Content-Security-Policy", policy("live") + "; frame-ancestors 'none'"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cache-Control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply[1])

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing of requests."""


def _listening(run: LiveRun, port: int | None) -> _Server:
    for one in [port] if port is not None else range(PORT, PORT + 11):
        try:
            return _Server(run, one)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SetupError(
                    f"Cannot listen on port {one}: {error.strerror}.", hint="Give another --port."
                ) from None
    taken = f"port {port} is" if port is not None else f"the ports {PORT} to {PORT + 10} are"
    raise SetupError(f"Cannot listen: {taken} taken.", hint="Give another with --port, or 0 for a free one.")
