"""Builds the pages as a site, in build/site: no request to any other machine is in it, and no link that leads nowhere.

``make site`` runs it. Pages link to one another, and to files, as they lie in the repository; so the site is built from
a copy that lies the same: the pages, and the files they name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "training/*.md", "tests/security/**/*.md", "codevqa/mini/weights/*/*.md")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def lay_out(target: Path) -> None:
    """Copies the pages and what they link to."""
    shutil.rmtree(target, ignore_errors=True)
    pages = [page for pattern in PAGES for page in ROOT.glob(pattern)]
    named = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text(encoding="utf-8"))
    }
    for file in {*pages, *named}:
        if file.is_file():
            place = target / file.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def main() -> int:
    """Lays out and builds; what mkdocs warns of is a failure."""
    lay_out(ROOT / "build" / "pages")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # Material's word about its successor
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=ROOT, env=quiet).returncode


if __name__ == "__main__":
    sys.exit(main())
