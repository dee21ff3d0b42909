"""The notebook runs from top to bottom in a fresh folder, and shows what its text says."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from traffic_kit import outside, watched

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
TOUR = ROOT / "docs" / "tour.ipynb"
Notebook = Any


class ThisPython(KernelSpecManager):
    """Starts the kernel with the Python of the tests, whatever kernels are installed on the machine."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name=kernel_name, language="python")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traffic") / "log"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for docs/, with the pictures where they are from there."""
    top = tmp_path_factory.mktemp("tour")
    (top / "examples").symlink_to(ROOT / "examples")
    (top / "docs").mkdir()
    return top / "docs"


@pytest.fixture(scope="module")
def tour(folder: Path, log: Path) -> dict[str, Notebook]:
    """The executed cells by their ids."""
    notebook = nbformat.read(TOUR, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    resources = {"metadata": {"path": str(folder)}}
    # Errors are asserted below: raised from the middle, they would leave sockets behind.
    client = NotebookClient(notebook, km=manager, timeout=300, allow_errors=True, resources=resources)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("CODEVQA", "OPENAI", "HF_"))}
    client.execute(env=watched(log, clean), cleanup_kc=True)
    return {cell.id: cell for cell in notebook.cells}


def printed(cell: Notebook) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")


def html(cell: Notebook) -> str:
    return "".join(output.data.get("text/html", "") for output in cell.outputs if "data" in output)


def test_no_cell_fails(tour: dict[str, Notebook]) -> None:
    outputs = [(cell.id, output) for cell in tour.values() for output in cell.get("outputs", [])]
    failed = [f"{id}: {one.ename}: {one.evalue}" for id, one in outputs if one.output_type == "error"]
    assert failed == []


def test_it_answers_with_the_program_that_it_shows(tour: dict[str, Notebook]) -> None:
    assert printed(tour["ask"]) == "yes\n"
    assert 'get_pos(img, "red house")' in printed(tour["program"])
    assert "find_matching_image(images," in printed(tour["baseline"])
    assert re.search(r"with a program: green\nbaseline: +\w+\n", printed(tour["baseline"]))


def test_the_answer_shows_itself_with_heat_maps(tour: dict[str, Notebook]) -> None:
    shown = html(tour["look"])
    heat_maps = re.findall(r'<img[^>]*class="[^"]*cv-heat[^"]*"[^>]*>', shown)
    assert len(heat_maps) == 2 and all('src="data:image/' in one for one in heat_maps)
    assert "red house" in shown and not re.search(r"<script|https?://", shown.replace("http://www.w3.org/", ""))


def test_the_trace_page_and_the_plain_data_are_there(tour: dict[str, Notebook], folder: Path) -> None:
    text = printed(tour["calls"])
    assert "get_pos(image 1, 'red house') -> [" in text and re.search(r"heat map of (\d+) x \1 patches", text)
    page = (folder / "build" / "trace.html").read_text(encoding="utf-8")
    assert "cv-heat" in page and "Is the red house to the left of the green tree?" in page


def test_only_the_changed_call_is_computed_again(tour: dict[str, Notebook]) -> None:
    lines = printed(tour["edit"]).splitlines()
    calls = {line.split("'")[1]: line.startswith("computed") for line in lines if "get_pos" in line}
    assert calls == {"blue cloud": True, "green tree": False}


def test_a_mistake_is_told_with_what_is_wrong(tour: dict[str, Notebook]) -> None:
    assert re.match(r"Program\w+ - .*qery.*", printed(tour["mistake"]))


def test_a_primitive_of_ones_own_is_called(tour: dict[str, Notebook]) -> None:
    assert "filled(img: Image) -> float" in printed(tour["primitive"])
    shares = re.findall(r"filled\(image (\d)\) -> (0\.\d+)", printed(tour["own"]))
    assert [number for number, _ in shares] == ["1", "3"]
    fullest = max(shares, key=lambda one: float(one[1]))[0]
    assert printed(tour["own"]).endswith(f"\npicture {fullest}\n")


def test_both_methods_are_evaluated(tour: dict[str, Notebook]) -> None:
    found = re.findall(r"^(\w+): (\d+) of 12 right$", printed(tour["evaluate"]), re.MULTILINE)
    assert [method for method, _ in found] == ["codevqa", "pnpvqa"]
    assert int(found[0][1]) >= 9


def test_nothing_is_written_to_the_error_stream(tour: dict[str, Notebook]) -> None:
    noise = [
        output.text for cell in tour.values() for output in cell.get("outputs", []) if output.get("name") == "stderr"
    ]
    assert noise == []


def test_nothing_leaves_the_machine(tour: dict[str, Notebook], log: Path) -> None:
    assert outside(log) == []


def test_what_is_committed_is_short_true_and_the_same_everywhere(tour: dict[str, Notebook]) -> None:
    raw = TOUR.read_text(encoding="utf-8")
    source = nbformat.read(TOUR, as_version=4)
    nbformat.validate(source)
    assert raw == nbformat.writes(source) + "\n", "normalise it: nbformat.write(nbformat.read(PATH, 4), PATH)"
    assert str(ROOT) not in raw and len(raw) < 30_000
    for cell in source.cells:
        if cell.cell_type == "code":
            assert cell.execution_count is None and cell.metadata == {}
            assert printed(cell) in ("", printed(tour[cell.id])), cell.id
            assert all(output.output_type == "stream" for output in cell.outputs), cell.id
