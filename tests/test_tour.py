"""The notebook runs from top to bottom in a fresh folder, and shows what its text says."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from traffic_kit import outside, watched

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs"))
from tour import ROOT, TOUR, executed

pytestmark = pytest.mark.slow
Notebook = Any


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traffic") / "log"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for the checkout."""
    return tmp_path_factory.mktemp("tour")


@pytest.fixture(scope="module")
def tour(folder: Path, log: Path) -> dict[str, Notebook]:
    """The executed cells by their ids."""
    return {cell.id: cell for cell in executed(folder, watched(log, dict(os.environ))).cells}


def printed(cell: Notebook) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def html(cell: Notebook) -> str:
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


def test_no_cell_fails_or_complains(tour: dict[str, Notebook]) -> None:
    outputs = [(cell.id, output) for cell in tour.values() for output in cell.get("outputs", [])]
    assert [(id, one) for id, one in outputs if one.output_type == "error" or one.get("name") == "stderr"] == []


def test_the_answer_shows_itself_with_heat_maps(tour: dict[str, Notebook]) -> None:
    shown = html(tour["look"])
    heat_maps = re.findall(r'<img[^>]*class="[^"]*cv-heat[^"]*"[^>]*>', shown)
    assert len(heat_maps) == 2 and all('src="data:image/' in one for one in heat_maps)
    assert "red house" in shown and not re.search(r"<script|https?://", shown.replace("http://www.w3.org/", ""))


def test_the_trace_page_and_the_plain_data_are_there(tour: dict[str, Notebook], folder: Path) -> None:
    text = printed(tour["calls"])
    assert "get_pos(image 1, 'red house') -> [" in text and re.search(r"heat map of (\d+) x \1 patches", text)
    page = (folder / "docs" / "build" / "trace.html").read_text(encoding="utf-8")
    assert "cv-heat" in page and "Is the red house to the left of the green tree?" in page


def test_only_the_changed_call_is_computed_again(tour: dict[str, Notebook]) -> None:
    lines = printed(tour["edit"]).splitlines()
    calls = {line.split("'")[1]: line.startswith("computed") for line in lines if "get_pos" in line}
    assert calls == {"blue cloud": True, "green tree": False}


def test_both_methods_are_evaluated(tour: dict[str, Notebook]) -> None:
    found = re.findall(r"^(\w+): (\d+) of 12 right$", printed(tour["evaluate"]), re.MULTILINE)
    assert [method for method, _ in found] == ["codevqa", "pnpvqa"]
    assert int(found[0][1]) >= 9


def test_nothing_leaves_the_machine(tour: dict[str, Notebook], log: Path) -> None:
    assert outside(log) == []


def test_what_is_committed_is_short_true_and_the_same_everywhere(tour: dict[str, Notebook]) -> None:
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
