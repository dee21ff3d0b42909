"""The environment that LAVIS lives in: it wants a transformers from before 4.27, which this package cannot use."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ...core.errors import SetupError

__all__ = ["VARIABLE", "folder", "install", "python_of", "versions"]

VARIABLE = "CODEVQA_LAVIS"
"""Names the environment's folder where it is not the default one; any environment with LAVIS in it will do."""
_LAVIS = "salesforce-lavis==1.0.2"
_PYTHONS = ("3.11", "3.10")
_VERSIONS = """
import importlib.metadata as m, json
print(json.dumps({name: m.version(name) for name in ("salesforce-lavis", "torch", "transformers")}))
"""


def folder() -> Path:
    """Returns where the environment is, or would be."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "codevqa" / "lavis"


def python_of(at: Path) -> Path:
    """Returns the Python of an environment."""
    return at / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def versions(at: Path) -> dict[str, str]:
    """Returns what an environment has of LAVIS, torch and transformers, importing none; nothing where LAVIS is not."""
    try:
        command = [str(python_of(at)), "-I", "-c", _VERSIONS]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return dict(json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}


def install(at: Path, python: str | None = None) -> None:
    """Makes the environment, or completes it; what pip says goes where this process's output does.

    Args:
        at: the folder.
        python: a Python 3.10 or 3.11; None takes this one, or one of those on the path.

    Raises:
        SetupError: there is no such Python, the folder holds something else, or pip failed.
    """
    if at.exists() and (not at.is_dir() or (any(at.iterdir()) and not (at / "pyvenv.cfg").is_file())):
        raise SetupError(f"{at} holds something that is no environment.", hint="Name another folder.")
    _run([_suitable(python), "-I", "-m", "venv", str(at)])
    pip = [str(python_of(at)), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    _run([*pip, "-r", str(Path(__file__).with_name("requirements.txt"))])
    # Last, and so a sign that all is there.
    _run([*pip, "--no-deps", _LAVIS])


def _suitable(python: str | None) -> str:
    candidates = [python] if python else [sys.executable, *(f"python{version}" for version in _PYTHONS)]
    for candidate in candidates:
        found = shutil.which(candidate)
        if found and _version(found) in _PYTHONS:
            return found
    asked = f"{python} is" if python else "There is"
    raise SetupError(f"{asked} no Python {' or '.join(_PYTHONS)}, which LAVIS needs.", hint="Name one with --python.")


def _version(python: str) -> str:
    command = [python, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SetupError(
            f"{' '.join(command[:5])} failed with status {done.returncode}; what it says is above.",
            hint="Run it again when that is mended.",
        )
