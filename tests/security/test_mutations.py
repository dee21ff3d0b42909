"""The tool that takes guards out finds them, and tells where no test fails."""

import subprocess
from pathlib import Path

import pytest
from mutations import ROOT, TABLE, mutants, run

DOOR = """
def opens(key, log):
    log.append(key)
    if not key:
        return False
    if len(key) > 9:
        raise ValueError(key)
    return key == "right"
"""
TEST = """
from door import opens

def test_door():
    log = []
    assert opens("right", log) and not opens("", log) and log == ["right", ""]
"""


def test_every_listed_function_and_test_is_there() -> None:
    found = {one.file: one for one in mutants()}
    assert len(found) >= 10
    for file, one in found.items():
        compile(one.source((ROOT / file).read_text("utf-8")), file, "exec")
        assert all((ROOT / "tests" / test).is_file() for test in one.tests)


@pytest.mark.slow
def test_a_guard_whose_absence_fails_no_test_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "door.py").write_text(DOOR)
    (tmp_path / "tests" / "test_door.py").write_text(TEST)
    table = tmp_path / TABLE.name
    table.write_text('[[target]]\ncode = ["door.py::opens"]\ntests = ["test_door.py"]\n')
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    told = {one.lacks[:8].rstrip(): caught for one, caught, _ in run(list(mutants(table, tmp_path)), tmp_path)}
    # Without its first "if" an empty key is still none; a long key is never tried.
    assert told == {"Expr 3 l": True, "If 4 if": False, "If 6 if": False, "Return 8": True}
