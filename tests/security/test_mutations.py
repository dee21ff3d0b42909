"""The table of defences is true: whoever changes a defence or a test of one keeps it so."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from mutations import ROOT, Defence, defences, run

TABLE = defences()


def test_each_defence_stands_once_where_the_table_says() -> None:
    for one in TABLE:
        without = one.taken_out((ROOT / one.file).read_text("utf-8"))
        assert one.text != one.instead
        if one.file.endswith(".py"):
            compile(without, one.file, "exec")
    assert len(TABLE) >= 60
    assert [name for name, count in Counter((one.layer, one.what) for one in TABLE).items() if count > 1] == []


def test_each_test_that_must_fail_is_there() -> None:
    functions: dict[str, set[str]] = {}
    for test in sorted({test for one in TABLE for test in one.tests}):
        file, _, name = test.partition("::")
        if file not in functions:
            body = ast.parse((ROOT / "tests" / file).read_text("utf-8")).body
            functions[file] = {node.name for node in body if isinstance(node, ast.FunctionDef)}
        assert name.partition("[")[0] in functions[file], test


@pytest.mark.slow
def test_a_defence_whose_absence_fails_no_test_is_told(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "door.py").write_text("def opens(key):\n    return key == 'right'\n")
    (tmp_path / "tests" / "test_door.py").write_text(
        "from door import opens\n\n\ndef test_open():\n    assert opens('right')\n\n\n"
        "def test_shut():\n    assert not opens('wrong')\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def without(instead: str, test: str) -> Defence:
        return Defence("door", "key", "door.py", "return key == 'right'", instead, (f"test_door.py::{test}",))

    told = run([without("return True", "test_shut"), without("return True", "test_open")], tmp_path)
    assert [one.outcome for one in told] == ["caught", "survived"]
    assert [one.outcome for one in run([without("return key ==", "test_shut")], tmp_path)] == ["broken"]
    with pytest.raises(ValueError, match="has its text 0 times"):
        next(iter(run([Defence("door", "lock", "door.py", "lock()", "", ("test_door.py::test_shut",))], tmp_path)))
    with pytest.raises(ValueError, match="fail where nothing is missing: FAILED tests/test_door"):
        (tmp_path / "tests" / "test_door.py").write_text("def test_none():\n    assert not 1\n")
        next(iter(run([without("return True", "test_none")], tmp_path)))
