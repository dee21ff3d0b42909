"""``codevqa view``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from .report import CompleteGraphs, Data, Examples, SceneGraphs
from .show import warn


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or under way.")],
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.", show_default="7870"),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    data: Data = None,
    examples: Examples = 6,
    scene_graphs: SceneGraphs = None,
    complete_graphs: CompleteGraphs = False,
) -> None:
    """Serve the report on a run to this machine's browser; it grows while the run goes on."""
    started = time.perf_counter()
    from ..eval.report.live import LiveRun, serve

    found = LiveRun(run, data=data, scene_graphs=scene_graphs, complete=complete_graphs, examples=examples)

    def opened(url: str) -> None:
        warn(f"listening on {url} after {time.perf_counter() - started:.1f} s; end with Ctrl-C")
        if browser:
            import webbrowser

            webbrowser.open(url)

    serve(found, port=port, opened=opened, say=warn)
