"""The site of the pages asks no other machine. ``make site`` builds it, and refuses links that lead nowhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(HTMLParser):
    """What a page loads."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if ("rel", "canonical") not in attrs:
            self.loads += [value for name, value in attrs if value is not None and (tag, name) in LOADS]


@pytest.mark.skipif(not SITE.is_dir(), reason="there is no site: make site")
def test_no_page_loads_anything_from_another_machine() -> None:
    pages = [Page(file) for file in SITE.rglob("*.html")]
    assert len(pages) > 20
    assert [url for page in pages for url in page.loads if urlsplit(url).netloc] == []
    styles = [file.read_text(encoding="utf-8") for file in SITE.rglob("*.css")]
    assert styles and not [url for text in styles for url in re.findall(r"url\(\s*[\"']?(?:https?:)?//", text)]
