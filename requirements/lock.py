"""Writes the locked requirements: exact versions, hashes of all their files, for Python 3.11 to 3.13 and all platforms.

``make lock`` runs it. Versions stay as they are, except with uv's ``--upgrade`` or ``--upgrade-package NAME``. One
resolution of everything is dealt out to files that are installed one after another; each package is in one of them.
torch's file is apart, since PyPI's build for Linux brings NVIDIA's libraries and the one of ``torch-cpu.txt`` does not.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
LAYERS: dict[str, tuple[str, ...]] = {
    "base": (),
    "smoke": ("smoke",),
    "demo": ("demo",),
    "vlm": ("vlm",),
    "test": ("test", "dev"),
    "site": ("site",),
    "release": ("release",),
}
"""Files, in the order in which they are installed, and the extras whose needs they add."""
GPU = re.compile(r"torch|triton|cuda-.+|nvidia-.+")
OPTIONS = (
    *("--quiet", "--universal", "--python-version=3.11", "--fork-strategy=fewest", "--generate-hashes"),
    *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
)
HEAD = "# Written by `make lock`; CONTRIBUTING.md says what it is for.\n"


def resolve(extras: Sequence[str], constraints: Path, output: Path, *options: str) -> dict[str, str]:
    """Resolves the needs of some extras; returns each package's lines by its name.

    Args:
        extras: Those of ``setup.cfg``.
        constraints: What versions must be.
        output: Receives the lock. Where it holds one, versions stay as they are in it.
        options: More of ``uv pip compile``.
    """
    asked = ("setup.cfg", *(f"--extra={extra}" for extra in extras), "-c", str(constraints), "-o", str(output))
    compiling = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, *asked, *options]
    subprocess.run(compiling, cwd=HERE.parent, check=True, stdout=subprocess.DEVNULL)
    entries = re.split(r"^(?=\w)", output.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {entry.partition("==")[0]: entry for entry in entries if "==" in entry}


def main(options: Sequence[str]) -> None:
    """Resolves everything, then deals it out."""
    torch = re.search(r"^(torch==[\d.]+)\+cpu", (HERE / "torch-cpu.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if torch is None:
        raise SystemExit("requirements/torch-cpu.txt names no torch==VERSION+cpu.")
    files = {name: HERE / f"{name}.txt" for name in ("torch", *LAYERS)}
    before = [file.read_text(encoding="utf-8") for file in files.values() if file.exists()]
    with tempfile.TemporaryDirectory() as folder:
        pin, locked, part = (Path(folder) / name for name in ("pin.txt", "locked.txt", "part.txt"))
        pin.write_text(torch[1], encoding="utf-8")
        locked.write_text("".join(before), encoding="utf-8")
        left = resolve([extra for extras in LAYERS.values() for extra in extras], pin, locked, *options)
        needed = {"torch": {name for name in left if GPU.fullmatch(name)}}
        needed |= {layer: {*resolve(extras, locked, part)} for layer, extras in LAYERS.items()}
    for name, file in files.items():
        entries = [left.pop(package) for package in sorted(needed[name] & left.keys())]
        file.write_text(HEAD + "".join(entries), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
