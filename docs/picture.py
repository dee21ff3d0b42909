"""Makes the answer that README begins with: its page, docs/examples/answer.html, and a picture of the page; and the
answer that the demo begins with, codevqa/demo/pictures/first.json.

``make screenshot`` runs it. It needs Chromium, as the tests of the page do.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from codevqa import CodeVQA
from codevqa.demo.pictures import shipped_questions

HERE = Path(__file__).resolve().parent
PAGE = HERE / "examples" / "answer.html"
FIRST = HERE.parent / "codevqa" / "demo" / "pictures" / "first.json"
PICTURE = HERE / "pictures" / "answer.png"
ASKED = "shelf-1.png", "Is the yellow star below the green heart?"
WIDTH = 1060
"""Wide enough for two columns; the height is that of the page until the end of what the program compared."""


def main() -> None:
    """Asks, writes the page, and photographs it."""
    name, question = ASKED
    for path in (PAGE, PICTURE):
        path.parent.mkdir(exist_ok=True)
    with CodeVQA.from_preset("mini") as vqa:
        vqa.ask("examples/pictures/garden.png", "Is it day?")  # so that the times shown are those of a warm engine
        vqa.ask(HERE.parent / "examples" / "pictures" / name, question).save_html(PAGE)
        pictures, first = shipped_questions()[0]
        both = [vqa.ask(pictures, first).to_dict(), vqa.ask(pictures, first, method="pnpvqa").to_dict()]
    FIRST.write_text(json.dumps(both, ensure_ascii=False, allow_nan=False) + "\n", "utf-8")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.goto(PAGE.as_uri())
        box = page.locator("#cv-program").bounding_box()
        if box is None:
            raise SystemExit("The page shows no program.")
        height = box["y"] + box["height"] + 8
        page.screenshot(path=PICTURE, full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
        browser.close()


if __name__ == "__main__":
    main()
