"""Reads roles of docstrings, such as ``:meth:`ask```, as code in the site; mkdocs calls it (mkdocs.yml)."""

from __future__ import annotations

import re
from typing import Any

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):<code>(?:~[\w.]*\.)?\.?([^<]+)</code>")


def on_page_content(html: str, **page: Any) -> str:
    """Returns a page without the names of roles."""
    return ROLE.sub(r"<code>\1</code>", html)
