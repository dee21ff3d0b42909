"""How the package lies on disk: ``codevqa.eval`` and ``codevqa.prompts`` are folders beside it, and links to them."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import codevqa
from codevqa.prompts import available

ROOT = Path(__file__).resolve().parents[1]

BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
USE = """
import sys
sys.modules.pop("__editable___codevqa_0_1_0_finder", None)  # this checkout's own
sys.meta_path[:] = [one for one in sys.meta_path if "__editable__" not in getattr(one, "__module__", "")]
sys.path.insert(0, sys.argv[1])
import __editable___codevqa_0_1_0_finder as made
made.install()
import codevqa.eval.datasets, codevqa.prompts
print(codevqa.eval.datasets.__file__, *codevqa.prompts.available())
"""


def test_importing_the_package_warns_of_nothing_and_loads_nothing_heavy() -> None:
    code = "import sys, codevqa; sys.exit(bool({'torch', 'PIL', 'numpy', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


def test_every_public_name_is_there() -> None:
    assert all(getattr(codevqa, name) is not None for name in codevqa.__all__)


@pytest.mark.slow
def test_an_editable_install_of_a_checkout_without_symbolic_links_lacks_a_package(tmp_path: Path) -> None:
    # As Git on Windows checks links out: files that hold the place they point to.
    checkout = tmp_path / "checkout"
    skipped = shutil.ignore_patterns("__pycache__", "weights")
    for folder in ("codevqa", "eval", "prompts"):
        shutil.copytree(ROOT / folder, checkout / folder, symlinks=True, ignore=skipped)
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout / name)
    for name in ("eval", "prompts"):
        link = checkout / "codevqa" / name
        link.unlink()
        link.write_text(f"../{name}")
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path)]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    site = tmp_path / "site"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(site)
    used = subprocess.run([sys.executable, "-P", "-c", USE, str(site)], capture_output=True, text=True, cwd=tmp_path)
    assert used.returncode == 0, used.stderr
    assert used.stdout.split() == [str(checkout / "eval/datasets/__init__.py"), *available()]
