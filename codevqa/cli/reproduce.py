"""``codevqa reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .ask import Quiet
from .configured import Config, LanguageModel, Sets, chosen
from .show import warn


def reproduce(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="gqa, covr or nlvr2.")],
    data: Annotated[Path, typer.Option(help="Folder of the downloaded data set.")],
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Without it: runs/paper-DATASET.")] = None,
    language_model: LanguageModel = None,
    release: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A checkout of the paper's release, for its prompts.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Only say what the run takes.")] = False,
    split: Annotated[str | None, typer.Option(help="Another split than the paper's.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask at most this many questions.")] = None,
    config: Config = None,
    sets: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Run the paper's evaluation and print both sets of figures.

    Uses the preset paper with --compat release, and your language model. --release brings the release's prompts. Says
    first what the run takes, continues a run that exists, and writes the report into it.
    """
    from ..core.errors import UnknownNameError
    from ..eval.datasets import open_dataset
    from ..eval.report.report import write
    from ..eval.reproduce import SPLITS, plan_lines, require_answers, table_lines
    from ..eval.reproduce import plan as look
    from ..eval.run.choices import engine_for
    from ..eval.run.runner import evaluate
    from ..presets.assembly import whole
    from ..presets.configuration import configure
    from ..prompts import find_pool
    from .progress import Bar

    if dataset not in SPLITS:
        raise UnknownNameError(f"The paper has no table of {dataset!r} to set up.", hint="gqa, covr or nlvr2.")
    choice = chosen("paper", config, "release", sets, language_model=language_model)
    configuration = whole(configure(choice.preset, choice.layers))
    if release is not None:
        pool = find_pool(release, dataset, finds="detector" in configuration.parts)
        choice = chosen("paper", config, "release", sets, language_model=language_model, prompts=str(pool))
        configuration = whole(configure(choice.preset, choice.layers))
    opened = open_dataset(dataset, data, split or SPLITS[dataset])
    folder = out or Path("runs", f"paper-{dataset}")
    found = look(opened, configuration, folder, limit)
    print("\n".join(plan_lines(found)), flush=True)
    if plan:
        return
    require_answers(found)
    engine = engine_for(opened, choice.preset, choice.layers)
    try:
        with Bar(quiet) as bar:
            store = evaluate(
                engine, opened, folder, limit=limit, resume=True, preset="paper", variant="release", progress=bar
            )
    except KeyboardInterrupt:
        warn(f"stopped; every finished row is in {folder}. The same command goes on")
        raise typer.Exit(130) from None
    with store:
        print("\n".join(["", *table_lines(store)]))
    print(write([folder]).page)
