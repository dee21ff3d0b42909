"""The site of the pages asks no other machine. ``make site`` builds it, and refuses links that lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
TAGS = "script|img|iframe|source|object|link(?![^>]*canonical)"
LOADS = rf"""<(?:{TAGS})\b[^>]*\s(?:src|href|data)=["']?((?:https?:)?//[^\s>]+)"""
IMPORTS = r"""url\(\s*["']?(?:https?:)?//"""


@pytest.mark.skipif(not SITE.is_dir(), reason="there is no site: make site")
def test_no_page_loads_anything_from_another_machine() -> None:
    for kind, fewest, pattern in (("html", 20, LOADS), ("css", 0, IMPORTS)):
        files = [file.read_text(encoding="utf-8") for file in SITE.rglob(f"*.{kind}")]
        assert len(files) > fewest and [url for text in files for url in re.findall(pattern, text)] == []
