"""``codevqa view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .report import CompleteGraphs, Data, SceneGraphs


def view(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, finished or under way.")],
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    data: Data = None,
    scene_graphs: SceneGraphs = None,
    complete_graphs: CompleteGraphs = False,
) -> None:
    """Write a run's report, as the run is now, and open it."""
    import webbrowser

    from ..eval.report.report import write

    page = write([run], data=data, scene_graphs=scene_graphs, complete=complete_graphs).page
    print(page)
    if browser:
        webbrowser.open(page.resolve().as_uri())
