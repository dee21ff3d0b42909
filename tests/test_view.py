"""``codevqa view``: a run in a browser while it goes on, served to this machine alone."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from browser_kit import PATIENCE, Visitor
from cli_kit import CommandLine, assert_one_clear_line, environment
from server_kit import free_port
from test_report_rows import COUNT, EVIL, make, opened, question, status

from codevqa.eval import Store
from codevqa.eval.run.run_info import RunInfo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


class Viewed:
    """``codevqa view`` in a process of its own."""

    def __init__(self, run: Path, *words: str) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "codevqa", "view", str(run), "--no-browser", "--port", str(self.port), *words]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment())
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()
        self.url = f"http://127.0.0.1:{self.port}/"

    def get(self, path: str, host: str = "") -> tuple[int, bytes, http.client.HTTPMessage]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path, headers={"Host": host} if host else {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers

    def rows(self, after: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(f"/rows?after={after}")[1])
        return found

    def end(self) -> tuple[int, str]:
        """Interrupts it; returns its status and all that it said after its first line."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=500)
        return self.process.returncode, said


@pytest.fixture
def view() -> Iterator[Callable[..., Viewed]]:
    made: list[Viewed] = []

    def begin(run: Path, *words: str) -> Viewed:
        made.append(Viewed(run, *words))
        assert f"listening on {made[-1].url}" in made[-1].said, made[-1].said
        return made[-1]

    yield begin
    for one in made:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    seen = Visitor(browser.new_context(viewport={"width": 1280, "height": 900}), None)
    yield seen
    seen.context.close()


def until(page: Page, holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE / 1000
    while not holds():
        assert time.monotonic() < end, what
        page.wait_for_timeout(50)


@pytest.mark.slow
def test_a_page_follows_a_run_that_goes_on(tmp_path: Path, view: Callable[..., Viewed], visitor: Visitor) -> None:
    folder = make(tmp_path / "made", 0).parent
    served = view(folder / "run", "--scene-graphs", str(folder / "graphs.json"))
    page = visitor.page
    page.goto(served.url)
    until(page, lambda: "0 questions answered" in page.locator("#progress").inner_text(), "a run without answers")
    with Store.open(folder / "run", writable=True) as store:
        for number in range(4):
            store.add(*question(number, folder))
        store.flush()
        until(page, lambda: status(page).startswith("4 questions"), "the first rows")
        item = opened(page, "thing 3 ")
        item.locator("img").evaluate("one => one.decode()")
        for number in range(4, COUNT):
            store.add(*question(number, folder))
        store.flush()
    until(page, lambda: status(page) == f"{COUNT} questions; CodeVQA right in 60; PnP-VQA right in 60", "all rows")
    assert "'thing 3'" in item.inner_text(), "what is open stays open"
    figures = page.locator("#figures")
    until(page, lambda: f"{COUNT}, {COUNT} clusters" in figures.inner_text(), "figures")
    steps = page.locator("#questions select:has(option[value='query is false'])")
    until(page, lambda: steps.count() == 1, "steps that are judged")
    assert page.title() == "CodeVQA on gqa val" and not page.locator("img[src=x]").count()
    assert visitor.complaints == [] and visitor.foreign == []
    assert served.end() == (0, "codevqa: ended\n")
    until(page, lambda: "does not answer" in page.locator("#progress").inner_text(), "the end")


def test_rows_come_once_and_in_bounded_replies(tmp_path: Path, view: Callable[..., Viewed]) -> None:
    run = make(tmp_path / "made", 1100)
    served = view(run)
    first = served.rows()
    second = served.rows(first["mark"])
    assert (len(first["part"]["rows"]), first["more"], second["more"]) == (1000, True, False)
    ids = [row[1] for reply in (first, second) for row in reply["part"]["rows"]]
    assert len(ids) == len(set(ids)) == 1100
    assert served.rows(second["mark"])["part"]["rows"] == []


def test_a_row_half_written_by_a_program_that_died_is_not_there(tmp_path: Path, view: Callable[..., Viewed]) -> None:
    run = make(tmp_path / "made", 3)
    code = (
        "import os, sys; from pathlib import Path; from test_report_rows import question\n"
        "from codevqa.eval import Store\n"
        "store = Store.open(sys.argv[1], writable=True)\n"
        "for number in (3, 4): store.add(*question(number, Path('/'))); store.flush()\n"
        "os.kill(os.getpid(), 9)"
    )
    where = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    subprocess.run([sys.executable, "-c", code, str(run)], env=where, timeout=500, check=False)
    log = run / "run.sqlite-wal"
    os.truncate(log, log.stat().st_size - 100)
    served = view(run)
    assert [row[1] for row in served.rows()["part"]["rows"]] == ["q0000", "q0001", "q0002", "q0003"]
    assert served.get("/trace?id=q0004")[0] == 404


def test_who_comes_by_another_name_is_refused(tmp_path: Path, view: Callable[..., Viewed]) -> None:
    served = view(make(tmp_path / "made", 2))
    for path in ("/", "/rows?after=0", "/trace?id=q0001", "/picture?id=q0001&n=0", "/figures"):
        for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", ""):
            found = served.get(path, host)
            assert found[0] == (403 if host else 200), (path, host)
            assert b"Is thing" not in found[1] or not host
        assert served.get(path, f"localhost:{served.port}")[0] == 200
    headers = served.get("/")[2]
    assert "default-src 'none'" in headers["Content-Security-Policy"] and "frame-ancestors 'none'" in str(headers)
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin" and headers["X-Content-Type-Options"] == "nosniff"
    listens = psutil.Process(served.process.pid).net_connections()
    assert {one.laddr.ip for one in listens} == {"127.0.0.1"}


def test_what_is_not_there_is_not_found(tmp_path: Path, view: Callable[..., Viewed]) -> None:
    served = view(make(tmp_path / "made", 2))
    for path in (
        "/nothing",
        "/../run.sqlite",
        "/rows",
        "/rows?after=-1",
        "/trace?id=absent",
        "/picture?id=q0001&n=9",
        f"/picture?id=q0001&n={'9' * 40}",
    ):
        assert served.get(path)[0] == 404, path
    assert served.get("/picture?id=q0001&n=0")[2]["Content-Type"] == "image/jpeg"
    assert EVIL in json.loads(served.get("/trace?id=q0000")[1])["methods"][0]["program"]
    assert served.end() == (0, "codevqa: ended\n")


def test_mistakes_are_one_clear_line(tmp_path: Path, codevqa: CommandLine) -> None:
    assert_one_clear_line(codevqa("view", tmp_path / "none", "--no-browser"), "is no run")
    Store.create(tmp_path / "run", RunInfo("gqa", "val", ("codevqa",))).close()
    wanted = ("view", tmp_path / "run", "--no-browser")
    assert_one_clear_line(codevqa(*wanted, "--scene-graphs", tmp_path / "none"), "No scene graphs at")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert_one_clear_line(codevqa(*wanted, "--port", taken.getsockname()[1]), "is taken. Give another with --port")
