"""Modules that moved: programs written for their old names go on working."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import codevqa
from codevqa.core.moved_modules import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_gives_other_objects_than_the_new_one(old: str) -> None:
    new = [import_module(place) for place in MOVED[old]]
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old][0]}"):
        sys.modules.pop(old, None)
        given = import_module(old)
    for one in new:
        public = [name for name in getattr(one, "__all__", vars(one)) if not name.startswith("_")]
        assert public and all(getattr(given, name) is getattr(one, name) for name in public)


def test_importing_the_package_warns_of_old_names_or_loads_what_is_heavy() -> None:
    code = "import sys, codevqa; sys.exit(bool({'torch', 'PIL', 'numpy', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


def test_a_public_name_is_missing() -> None:
    assert all(getattr(codevqa, name) is not None for name in codevqa.__all__)
