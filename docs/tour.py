"""Runs docs/tour.ipynb from top to bottom and keeps its outputs; ``make tour`` runs this."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
TOUR = ROOT / "docs" / "tour.ipynb"


class ThisPython(KernelSpecManager):
    """Starts every kernel with the Python of this process."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Returns the only kernel."""
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=command, display_name=kernel_name, language="python")


def execute_notebook(top: Path, environment: Mapping[str, str]) -> Any:
    """Returns the executed notebook, errors included. It runs in ``top``, an empty folder in place of the checkout."""
    (top / "examples").symlink_to(ROOT / "examples")
    (top / "docs").mkdir()
    notebook = nbformat.read(TOUR, as_version=4)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=ThisPython())
    resources = {"metadata": {"path": str(top / "docs")}}
    # The caller handles errors: raised here, they would leave sockets open.
    client = NotebookClient(notebook, km=manager, timeout=300, allow_errors=True, resources=resources)
    clean = {name: value for name, value in environment.items() if not name.startswith(("CODEVQA", "OPENAI", "HF_"))}
    client.execute(env=clean, cleanup_kc=True)
    return notebook


def tidy_notebook(notebook: Any) -> Any:
    """Returns an executed notebook with one form of each output, and without what differs between runs."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type != "code":
            continue
        cell.execution_count = None
        kept: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "error" or output.get("name") == "stderr":
                sys.exit(f"{cell.id}: {output}")
            if output.output_type == "stream":
                if kept and kept[-1].output_type == "stream":
                    kept[-1].text += output.text
                else:
                    kept.append(output)
                continue
            form = next((kind for kind in ("text/html", "image/png") if kind in output.data), None)
            if form is not None:
                kept.append(nbformat.v4.new_output("display_data", {form: output.data[form]}))
        cell.outputs = kept
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    """Runs the notebook and replaces it."""
    with tempfile.TemporaryDirectory() as folder:
        notebook = tidy_notebook(execute_notebook(Path(folder), os.environ))
    TOUR.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
