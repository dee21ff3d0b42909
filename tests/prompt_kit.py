"""The folder of the shipped prompt sets, and a copy of one for tests to change."""

from __future__ import annotations

import shutil
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "prompts"


def gqa_in(folder: Path) -> Path:
    """Copies the set ``gqa`` into a folder."""
    return Path(shutil.copytree(PACKAGE / "gqa", folder / "mine"))
