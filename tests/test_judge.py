"""Programs of two ways judged by reading: the sheet hides the way, and the score knows it again."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import judge

QUESTIONS = 12


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Programs of two arms: alike for every third question; those of "good" say so."""
    rows = [
        {
            "arm": arm,
            "id": str(n),
            "question": f"Is it {n}?",
            "source": "answer = 0" if n % 3 == 0 else f"answer = '{arm}'",
        }
        for arm in ("good", "poor")
        for n in range(QUESTIONS)
    ]
    path = tmp_path / "programs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["judge.py", *map(str, words)])
    return judge.main()


def test_a_sheet_is_judged_without_its_key_and_scored_with_it(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = programs.with_name("sheet.md")
    assert run(monkeypatch, "sheet", programs, "poor", "good", "--out", sheet) == 0
    text = sheet.read_text()
    assert text.count("verdict:\n") == 20, "equal programs are judged once"
    assert run(monkeypatch, "score", sheet) == 2 and "Verdict 1 is ''" in capsys.readouterr().err
    parts = re.split(r"(?<=verdict:)", text)
    filled = "".join(part + (" wrong" if "'poor'" in part else " right") * (n < 20) for n, part in enumerate(parts))
    sheet.write_text(filled)
    assert run(monkeypatch, "score", sheet) == 0
    out = capsys.readouterr().out
    assert "poor: 4 right" in out and "good: 12 right" in out
    assert "good against poor: 8 better, 0 worse, sign test p = 0.0078" in out


def test_a_filled_sheet_is_not_written_over(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = programs.with_name("sheet.md")
    sheet.write_text("verdict: right")
    assert run(monkeypatch, "sheet", programs, "poor", "good", "--out", sheet) == 2
    assert sheet.read_text() == "verdict: right"


def test_an_unknown_way_is_named(
    programs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "sheet", programs, "good", "bad", "--out", programs.with_name("sheet.md")) == 2
    assert "There are: good, poor." in capsys.readouterr().err
