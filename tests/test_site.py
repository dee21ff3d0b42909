"""The site of the pages: it builds without a warning, links nowhere that is not there, and asks no other machine."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
LOADS = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(HTMLParser):
    """What a page loads, where it leads, and the places in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.places.add(value)
            elif (tag, name) in LOADS and ("rel", "canonical") not in attrs:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


@pytest.fixture(scope="module")
def site() -> dict[Path, Page]:
    if importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed: make site")
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build_site.py")], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {file: Page(file) for file in (ROOT / "build" / "site").rglob("*.html")}


def test_a_page_loads_something_from_another_machine(site: dict[Path, Page]) -> None:
    assert len(site) > 20
    outside = [(page.file.name, url) for page in site.values() for url in page.loads if urlsplit(url).netloc]
    assert outside == []
    styles = [file.read_text(encoding="utf-8") for file in (ROOT / "build" / "site").rglob("*.css")]
    assert styles and not [url for text in styles for url in re.findall(r"url\(\s*[\"']?(?:https?:)?//", text)]


def test_a_link_leads_nowhere(site: dict[Path, Page]) -> None:
    dead = []
    for page in site.values():
        for url in (*page.links, *page.loads):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or page.file.name == "404.html":
                continue
            target = (page.file.parent / unquote(parts.path)).resolve() if parts.path else page.file
            if not target.is_file() or (target in site and unquote(parts.fragment) not in site[target].places):
                dead.append((page.file.name, url))
    assert dead == []
