"""Looks at the demo with a real browser, as visitors do, and watches what their browsers send where.

Where Chromium, Playwright or Gradio is missing the tests are skipped and say what to install. With
``CODEVQA_REQUIRE_BROWSER=1``, which continuous integration sets, that is a failure instead. Screenshots go to
build/screenshots.

The fixtures ``browser``, ``server`` and ``visit`` are in conftest.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from demo_kit import Server
    from playwright.sync_api import BrowserContext, Locator, Page

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "examples" / "pictures"
SCREENSHOTS = ROOT / "build" / "screenshots"
PATIENCE = 120_000
"""Milliseconds that anything on the page may take on a busy machine; nothing here measures speed."""

STREAM = "/queue/data"
FLAGS = [
    "--no-sandbox",  # continuous integration is root in a container
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
]


def chromium() -> str | None:
    """Returns the browser's program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def need_browser() -> None:
    """Skips the test where there is no browser; fails it where one was promised."""
    lacks = [package for package in ("gradio", "playwright") if importlib.util.find_spec(package) is None]
    lacks += [] if chromium() else ["Chromium"]
    if lacks and os.environ.get("CODEVQA_REQUIRE_BROWSER") == "1":
        pytest.fail(f"CODEVQA_REQUIRE_BROWSER is set, but there is no {lacks[0]}", pytrace=False)
    if lacks:
        pytest.skip(f"there is no {lacks[0]}: pip install 'codevqa[demo,test]', apt-get install chromium")


# -- the visitor -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallCard:
    """One call as the page shows it."""

    name: str
    state: str
    text: str


class Visitor:
    """Somebody with the page open. Everything their browser requests or complains about is kept."""

    def __init__(self, context: BrowserContext, server: Server | None) -> None:
        self.context = context
        self.server = server
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.streams: set[Any] = set()
        """Event streams of Gradio that are open: it closes its stream when nothing more is to come."""
        context.on("request", self._requested)
        for ended in ("requestfinished", "requestfailed"):
            context.on(ended, lambda request: self.streams.discard(request))
        context.on("weberror", lambda error: self.complaints.append(f"uncaught: {error.error}"))
        context.on("console", self._noted)
        context.on("dialog", self._asked)
        self.page: Page = context.new_page()
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.set_default_timeout(PATIENCE)

    def _requested(self, request: Any) -> None:
        self.requests.append(request.url)
        if STREAM in request.url:
            self.streams.add(request)

    def _noted(self, message: Any) -> None:
        url = message.location.get("url", "")
        # Who asks before Gradio has numbered what the page opens with has it cancel something without a number.
        early = " 422 " in message.text and url.endswith(("/gradio_api/cancel", "/gradio_api/reset"))
        if message.type == "error" and not early:
            self.complaints.append(f"console: {message.text} {url}")

    def _asked(self, dialog: Any) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def open(self) -> Visitor:
        """Opens the page, and waits until it can be used."""
        assert self.server is not None
        self.page.goto(self.server.url)
        self["ask"].wait_for()
        self["status"].get_by_role("status").wait_for()
        return self

    def __getitem__(self, name: str) -> Locator:
        """The part of the page with the id ``cv-NAME``."""
        return self.page.locator(f"#cv-{name}")

    def button(self, name: str) -> Locator:
        return self.page.locator(f"button#cv-{name}, #cv-{name} button").first

    # -- doing ---------------------------------------------------------------------------------------------------------

    def example(self, number: int) -> None:
        """Clicks a shipped example, which asks its question."""
        self.mark()
        self.button(f"example-{number}").click()

    def upload(self, *files: Path) -> None:
        self["pictures"].locator("input[type=file]").first.set_input_files([str(file) for file in files])

    def ask(self, question: str) -> None:
        self.page.locator("#cv-question textarea, textarea#cv-question").first.fill(question)
        self.mark()
        self.button("ask").click()

    def finished(self) -> str:
        """Waits until nothing runs any more; returns the answer."""
        self.until(lambda: not self.busy() and not self.streams, "the end of the question")
        return self.answer()

    def edit(self) -> None:
        """Opens the editor, where it is not open."""
        if self.button("edit").is_visible():
            self.button("edit").click()
        self["program"].locator(".cm-content").wait_for()

    def replace_program(self, source: str) -> None:
        """Puts another program into the editor, as if pasted over the old one."""
        self.edit()
        self["program"].locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(source)
        self.until(lambda: self.program().strip() == source.strip(), "the program in the editor")

    def retype_line(self, number: int, line: str) -> None:
        """Types a line of the program anew, key by key; the first is 1."""
        self.edit()
        self["program"].locator(".cm-line").nth(number - 1).click()
        for keys in ("Home", "Shift+End", "Delete"):
            self.page.keyboard.press(keys)
        self.page.keyboard.type(line)
        self.until(lambda: self.program().splitlines()[number - 1] == line, "the typed line")

    def run(self) -> None:
        self.edit()
        self.mark()
        self.button("run").click()

    def press_enter(self) -> None:
        """Presses Enter on what has the focus, to ask or to run."""
        self.mark()
        self.page.keyboard.press("Enter")

    def mark(self) -> None:
        """Before a question: what the page says of its progress now is of the one before."""
        self["status"].locator("[role=status]").evaluate_all("all => all.forEach(one => one.dataset.old = '1')")

    # -- looking -------------------------------------------------------------------------------------------------------

    def busy(self) -> bool:
        """Whether what was asked since :meth:`mark` has not ended."""
        status = self["status"].locator("[role=status]:not([data-old])")
        return not (status.count() and re.match("Done|Failed|Stopped|$", status.inner_text().strip()))

    def answer(self) -> str:
        return self["answer"].inner_text().strip()

    def program(self) -> str:
        return "\n".join(self["program"].locator(".cm-line").all_inner_texts()).replace("\u200b", "")

    def calls(self) -> list[CallCard]:
        """The calls' cards, in their order."""
        cards = (
            self["live"]
            .locator(".cv-call")
            .evaluate_all("cards => cards.map(card => [card.dataset.name, card.dataset.state, card.innerText])")
        )
        return [CallCard(*card) for card in cards]

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Waits for something the page is to show."""
        end = time.monotonic() + PATIENCE / 1000
        while not done():
            if time.monotonic() > end:
                self.shot(f"failed-{re.sub('[^a-z]+', '-', what.lower())}")
                output = self.server.output_path.read_text()[-2000:] if self.server else ""
                messages = self["message"].all_inner_texts()
                raise AssertionError(
                    f"{what} did not come.\n{messages}\nComplaints: {self.complaints}\nServer: {output}"
                )
            self.page.wait_for_timeout(50)

    def focused(self) -> str:
        """The part that has the focus; empty where it has no name."""
        name: str = self.page.evaluate("(document.activeElement.closest('[id^=cv-]') || {id: 'cv-'}).id.slice(3)")
        return name

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def overflow(self) -> int:
        """Pixels that the page is wider than the window."""
        script = "document.scrollingElement.scrollWidth - window.innerWidth"
        return int(self.page.evaluate(script))

    def grave(self) -> list[str]:
        """What axe finds to be serious or critical on the page, contrast of texts too, each as one line."""
        from axe_playwright_python.sync_playwright import Axe

        violations: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{violation['id']}: {violation['help']}. {len(violation['nodes'])} places: "
            + ", ".join(str(node["target"]) for node in violation["nodes"][:3])
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ]
