"""Walks a newcomer's first steps in a terminal and a browser, and says what each took and showed.

``python benchmarks/five_minutes.py [FOLDER]``: clones what is committed into an empty folder (a temporary one, which
goes again), installs, asks, tries a photograph and a preset without network, and evaluates. Then it opens the page on
every width, light and dark, with a picture of its own, and follows docs/own-questions.md and docs/own-primitive.md.
Nothing of this environment is used but the interpreter and the browser of the tests. Beside the seconds stand those of
the processor, which a busy machine changes less. Ends with status 1 where a step shows something else than it should.
"""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from browser_kit import Visitor

ROOT = Path(__file__).resolve().parents[1]
NOWHERE = "http://127.0.0.1:9"
PORT = 7867
WINDOWS = ((390, 844), (820, 1180), (1024, 768), (1400, 900))
SOON = 8
"""Seconds from the command in which the page should show an answered example."""
QUESTIONS = (
    ("garden.png", "Is the red house to the left of the green tree?", "yes"),
    ("garden.png", "Is there a yellow flower and a blue cloud?", "yes"),
    ("garden.png", "What color is the house?", "red"),
    ("garden.png", "Is there a purple star?", "no"),
    ("garden.png", "What color is the tree?", "green"),
    ("harbor.png", "What color is the flag?", "red"),
    ("harbor.png", "Is there a green boat or an orange fish?", "yes"),
    ("harbor.png", "Is there a black ladder?", "no"),
    ("harbor.png", "Is the flag red?", "yes"),
    ("harbor.png", "Is there a purple heart?", "no"),
)
"""Of one's own: picture, question and answer."""


@dataclass
class CloneWalk:
    """A clone and what was seen in it."""

    home: Path
    failed: list[str] = field(default_factory=list)
    spent: float = 0.0
    """Seconds of the processor in the steps so far."""

    @property
    def environment(self) -> dict[str, str]:
        """Nobody's settings, no models fetched before, and no way to any."""
        ours = ("CODEVQA", "OPENAI", "HF_", "VIRTUAL_ENV", "PYTHON")
        clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return {**clean, "HF_ENDPOINT": NOWHERE, "HF_HOME": str(self.home / "no-models")}

    def step(self, name: str, command: str, expected: str, status: int = 0) -> None:
        """Runs a line in a shell at the top of the clone, and notes the seconds and the last line it printed."""
        before = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.home, env=self.environment, capture_output=True, text=True, timeout=1200
        )
        output = done.stdout + done.stderr
        self.note(name, time.perf_counter() - before, (done.stdout or done.stderr).strip().splitlines())
        if expected not in output or done.returncode != status:
            self.failed.append(f"{name}: no {expected!r}, or status {done.returncode}:\n{output[-2000:]}")

    def see(self, name: str, look: Callable[[], str]) -> None:
        """Looks at something in a browser, and notes the seconds and what it says."""
        before, text = time.perf_counter(), "wrong"
        try:
            text = look()
        except Exception as error:  # noqa: BLE001 - a wrong step must not end the walk, whatever is wrong with it
            self.failed.append(f"{name}: {error}")
        self.note(name, time.perf_counter() - before, [text])

    def note(self, name: str, seconds: float, lines: Sequence[str]) -> None:
        """Prints a step."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        before, self.spent = self.spent, used.ru_utime + used.ru_stime
        shown = lines[-1][:150] if lines else ""
        print(f"{name:<32}{seconds:7.1f} s {self.spent - before:7.1f} s   {shown}", flush=True)


def walk(home: Path) -> list[str]:
    """Takes every step in a clone; returns what was not as it should be."""
    codevqa, garden = ".venv/bin/codevqa", "examples/pictures/garden.png"
    photograph = ".venv/lib/python3*/site-packages/sklearn/datasets/images/china.jpg"
    tour = CloneWalk(home)
    tour.step("git clone", f"git clone -q --no-hardlinks {ROOT} . && du -sh --exclude .git . | cut -f1", "M")
    tour.step("make demo", "make demo", "Ask yourself")
    tour.step("import torch, to compare with", ".venv/bin/python -c 'import torch'", "")
    asked = "Is the red house to the left of the green tree?"
    for name in ("codevqa ask: first", "codevqa ask: again"):
        tour.step(name, f"{codevqa} ask {garden} -q '{asked}'", "yes")
    tour.step("a photograph", f"{codevqa} ask {photograph} -q 'What color is the roof?'", "I don't know")
    tour.step("--preset base without network", f"{codevqa} ask {garden} -q '{asked}' --preset base", "download base", 2)
    tour.step("an option that there is not", f"{codevqa} ask {garden} -q x --set matcher.blok=2", "Did you mean", 2)
    tour.step("codevqa config", f"{codevqa} config | grep captions", "captions")
    tour.step("codevqa mini-data", f"{codevqa} mini-data DATA && du -sh DATA | cut -f1", "M")
    command = "codevqa eval gqa --data DATA --split testdev_balanced --out runs/gqa --limit 20"
    tour.step("codevqa eval, 20 questions", f".venv/bin/{command} && ls runs/gqa | xargs", "")
    tour.step("codevqa report", f"{codevqa} report runs/gqa", "report.html")
    with (home / "questions.jsonl").open("w", encoding="utf-8") as file:
        for name, question, answer in QUESTIONS:
            row = {"image": f"examples/pictures/{name}", "question": question, "answer": answer, "place": name}
            file.write(json.dumps(row) + "\n")
    tour.step("ten questions of one's own", f"{codevqa} eval questions.jsonl --out runs/own", "10 questions")
    tour.step("  their report", f"{codevqa} report runs/own", "report.html")
    page = (home / "docs" / "own-primitive.md").read_text(encoding="utf-8")
    code, shell = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL) for kind in ("python", "sh"))
    (home / "my.py").write_text(code[1] if code else "", encoding="utf-8")
    typed = shell[1].replace("codevqa run", f"{codevqa} run") if shell else "no command on the page"
    tour.step("a primitive of one's own", typed.strip(), "0.")
    browse(tour)
    return tour.failed


def browse(tour: CloneWalk) -> None:
    """Looks at the page and at the report on every width, light and dark."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser_kit import FLAGS, Visitor, chromium
    from demo_kit import Server
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)

        def visitor(width: int = 1400, height: int = 900, dark: bool = False) -> Visitor:
            scheme: Literal["dark", "light"] = "dark" if dark else "light"
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            return Visitor(context, Server(f"http://127.0.0.1:{PORT}/", 0, tour.home / "demo.log"))

        with serving(tour):
            tour.see(f"first example, {SOON} s wanted", lambda: first_example(visitor()))
            for (width, height), dark in product(WINDOWS, (False, True)):
                name = f"page, {width}x{height}{', dark' if dark else ''}"
                tour.see(name, partial(own_picture, visitor(width, height, dark), tour.home))
        for (width, height), dark in product(WINDOWS, (False, True)):
            name = f"report, {width}{', dark' if dark else ''}"
            tour.see(name, partial(open_report, visitor(width, height, dark), tour.home))
        browser.close()


@contextmanager
def serving(tour: CloneWalk) -> Iterator[None]:
    """Serves the page from the clone, from the moment that this begins."""
    command = [".venv/bin/codevqa", "demo", "--port", str(PORT), "--no-browser"]
    with (
        (tour.home / "demo.log").open("w") as log,
        subprocess.Popen(command, cwd=tour.home, env=tour.environment, stdout=log, stderr=log) as running,
    ):
        yield
        running.terminate()


def first_example(someone: Visitor) -> str:
    """Waits for the page and for the answered example that it opens with."""
    for _ in range(2000):
        with suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
            break
        time.sleep(0.05)
    someone.open()
    someone.until(lambda: "yes" in someone.answer(), "the first example")
    return calm(someone)


def own_picture(someone: Visitor, home: Path) -> str:
    """Uploads a picture and asks about it, without scrolling."""
    size = someone.page.viewport_size
    assert size is not None
    someone.open()
    box = someone.button("ask").bounding_box()
    assert size["width"] != 1024 or (box and box["y"] + box["height"] <= size["height"]), f"Ask is out of sight: {box}"
    someone.upload(home / "examples" / "pictures" / "harbor.png")
    someone.ask("What color is the flag?")
    reply = " ".join(someone.finished().split())
    assert "red" in reply, reply
    box = someone["answer"].bounding_box()
    assert size["width"] != 390 or (box and 0 <= box["y"] < size["height"] - 80), f"the answer is out of sight: {box}"
    return f"{reply[:60]}; {calm(someone)}"


def open_report(someone: Visitor, home: Path) -> str:
    """Opens the report on the ten questions."""
    someone.page.goto((home / "runs" / "own" / "report.html").as_uri())
    someone.page.locator("#questions[data-whole]").wait_for()
    assert someone.page.locator(".example img.cv-heat").first.is_visible(), "no heat map"
    return f"{someone.page.locator('#questions [role=status]').inner_text()}; {calm(someone)}"


def calm(someone: Visitor) -> str:
    """Whether the page fits its window and its browser has nothing to complain about."""
    overflow, complaints = someone.overflow(), list(someone.complaints)
    someone.context.close()
    assert overflow <= 0 and not complaints, f"{overflow} pixels too wide, or complaints: {complaints}"
    return "it fits, and nothing is complained about"


def main() -> int:
    """Walks in a folder that goes again, or in the one that is named."""
    with tempfile.TemporaryDirectory(prefix="five-minutes-") as scratch:
        home = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(scratch) / "codevqa"
        home.mkdir(parents=True)
        failed = walk(home)
    for failure in failed:
        print(failure, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
