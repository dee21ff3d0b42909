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
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "docs/*.css", "mini/training/*.md", "tests/security/**/*.md", "mini/weights/*/*.md")
MOVED = {"docs/index.md": "index.md", "README.md": "start.md"}
"""The site opens with the page that is an index to all; the README comes second."""
LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def lay_out(target: Path) -> None:
    """Copies the pages and what they link to."""
    shutil.rmtree(target, ignore_errors=True)
    pages = {page for pattern in PAGES for page in ROOT.glob(pattern)}
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    named = {(page.parent / link[1]).resolve() for page, text in texts.items() for link in LINK.finditer(text)}
    for file in pages | named:
        if file.is_file():
            place = target / place_of(file)
            place.parent.mkdir(parents=True, exist_ok=True)
            if file in pages:
                place.write_text(LINK.sub(partial(relative_link, file), texts[file]), encoding="utf-8")
            else:
                shutil.copyfile(file, place)


def place_of(file: Path) -> str:
    """Returns where a file of the repository lies in the site."""
    name = file.relative_to(ROOT).as_posix()
    return MOVED.get(name, name)


def relative_link(page: Path, link: re.Match[str]) -> str:
    """Returns a link of a page as it leads there in the site."""
    file = (page.parent / link[1]).resolve()
    if not file.is_file():
        return link[0]
    return f"]({os.path.relpath(place_of(file), Path(place_of(page)).parent)}{link[2] or ''})"


def main() -> int:
    """Lays out and builds; what mkdocs warns of is a failure."""
    lay_out(ROOT / "build" / "pages")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # Material's word about its successor
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=ROOT, env=quiet).returncode


if __name__ == "__main__":
    sys.exit(main())
