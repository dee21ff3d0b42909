"""The notebook runs from top to bottom in a fresh folder, and shows what its text says."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from traffic_kit import outside, watched

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
from tour import ROOT, TOUR, execute_notebook

pytestmark = pytest.mark.slow
Notebook = Any


def printed(cell: Notebook) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def html(cell: Notebook) -> str:
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


def test_the_notebook_shows_what_its_text_says_and_is_committed_as_it_runs(tmp_path: Path) -> None:
    log, top = tmp_path / "log", tmp_path / "tour"
    top.mkdir()
    tour = {cell.id: cell for cell in execute_notebook(top, watched(log, dict(os.environ))).cells}
    outputs = [(id, output) for id, cell in tour.items() for output in cell.get("outputs", [])]
    assert [
        (id, output) for id, output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ] == []
    assert outside(log) == []
    shown = html(tour["look"])
    heat_maps = re.findall(r'<img[^>]*class="[^"]*cv-heat[^"]*"[^>]*>', shown)
    assert len(heat_maps) == 2 and all('src="data:image/' in tag for tag in heat_maps)
    assert "red house" in shown and not re.search(r"<script|https?://", shown.replace("http://www.w3.org/", ""))
    assert "cv-heat" in (top / "docs" / "build" / "trace.html").read_text(encoding="utf-8")
    calls = [line for line in printed(tour["edit"]).splitlines() if "get_pos" in line]
    computed = {line.split("'")[1]: line.startswith("computed") for line in calls}
    assert computed == {"blue cloud": True, "green tree": False}, "only the changed call is computed again"
    scores = re.findall(r"^(\w+): (\d+) of 12 right$", printed(tour["evaluate"]), re.MULTILINE)
    assert [method for method, _ in scores] == ["codevqa", "pnpvqa"] and int(scores[0][1]) >= 9

    raw = TOUR.read_text(encoding="utf-8")
    source = nbformat.read(TOUR, as_version=4)
    nbformat.validate(source)
    assert raw == nbformat.writes(source) + "\n", "make tour"
    assert str(ROOT) not in raw and len(raw) < 100_000
    cells = {cell.id: cell for cell in source.cells if cell.cell_type == "code"}
    for id, cell in cells.items():
        assert cell.execution_count is None and cell.metadata == {}
        assert printed(cell) == printed(tour[id]), f"{id}: make tour"
    (picture,) = cells["picture"].outputs
    assert [*picture.data] == ["image/png"]
    assert "cv-heat" in html(cells["look"]) and "red house" in html(cells["look"])
