"""``codevqa eval``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .ask import Quiet
from .configured import Compat, Config, LanguageModel, Preset, PromptForm, Sets, chosen
from .show import hush, tell_compat, warn

if TYPE_CHECKING:
    from ..eval.run.store import Store


def evaluate(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="gqa, covr, nlvr2, nlvr, vqav2 or okvqa.")],
    data: Annotated[str, typer.Option(help="Folder of the downloaded data set, or hf://OWNER/NAME for its tables.")],
    out: Annotated[Path, typer.Option(help="Folder of the run.")],
    split: Annotated[
        str | None, typer.Option(help="Split, such as testdev_balanced. Without it: the one that papers report.")
    ] = None,
    method: Annotated[str, typer.Option(help="codevqa, pnpvqa (the baseline), or both.")] = "both",
    limit: Annotated[
        int | None, typer.Option(min=0, help="Ask at most this many questions. Can grow with --resume.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Skip this many questions at the start.")] = 0,
    sample: Annotated[
        int | None, typer.Option(help="Ask a random sample of this many questions. Groups stay whole.")
    ] = None,
    sample_seed: Annotated[int, typer.Option(help="Seed of the sample.")] = 0,
    retry_errors: Annotated[
        bool, typer.Option("--retry-errors", help="With --resume: ask the questions again that could not be asked.")
    ] = False,
    missing_pictures: Annotated[
        str | None, typer.Option(help="stop before models load, or skip. The default is stop, and skip for a replay.")
    ] = None,
    max_failed: Annotated[
        float, typer.Option(min=0, max=1, help="Exit with status 1 if a larger share of questions could not be asked.")
    ] = 0.05,
    seed: Annotated[int | None, typer.Option(help="Seed for sampling captions.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Ask each question this many times, with seed, seed + 1, ...")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out, if there is one.")] = False,
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    prompts: Annotated[str | None, typer.Option(help="Use another prompt set than the data set's.")] = None,
    language_model: LanguageModel = None,
    form: PromptForm = None,
    workers: Annotated[int | None, typer.Option(help="Number of questions answered at once.")] = None,
    variant: Annotated[str, typer.Option(help="Variant of the metric.")] = "",
    evidence: Annotated[
        str, typer.Option(help="What to keep of each call: calls, or full with maps and prompts.")
    ] = "calls",
    permutations: Annotated[
        int | None, typer.Option(help="NLVR: how many of a statement's six pictures to ask.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep every model call in --out, for --replay.")] = False,
    replay: Annotated[Path | None, typer.Option(help="Answer from a recorded run, without models.")] = None,
    where: Annotated[
        str, typer.Option("--engine", help="local, or ray for an engine on each GPU or machine.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="HOST:PORT of a Ray cluster, or auto. Without it: Ray on this machine.")
    ] = None,
    ray_actors: Annotated[
        int | None, typer.Option(help="Number of engines, up to four a GPU. Without it: one for each GPU or 4 CPUs.")
    ] = None,
    sets: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate both methods on a data set.

    Saves every finished question. --resume continues an interrupted run, with the same settings.
    """
    from ..core.errors import InputError
    from ..eval.datasets import open_dataset, splits
    from ..eval.datasets.sample import sample as draw
    from ..eval.metrics import metric_for
    from ..eval.report.table import summary_lines, summary_of
    from ..eval.run.choices import engine_for, methods_of, preset_of
    from ..presets.configuration import configure
    from .progress import Bar

    if evidence not in ("calls", "full"):
        raise InputError(f"No evidence {evidence!r}.", hint="There are: calls, full.")
    run = _runner(where, ray_address, ray_actors, record)
    methods = methods_of(method)
    opened = open_dataset(dataset, data, split or splits(dataset)[0], permutations=permutations)
    if sample is not None:
        opened = draw(opened, sample, sample_seed)
    choice = chosen(
        preset,
        config,
        compat,
        sets,
        prompts=prompts,
        language_model=language_model,
        seed=seed,
        workers=workers,
        form=form,
    )
    variant = variant or compat or ""  # what scores as that implementation bears its name
    metric_for(opened.name, variant)  # a wrong name should not cost a run
    configuration = configure(choice.preset, choice.layers)
    engine = engine_for(opened, choice.preset, choice.layers, record=out if record else None, replay=replay)
    if quiet:
        hush()
    else:
        tell_compat(configuration)
        for note in opened.notes:
            warn(note)
        warn(f"{opened.name} {opened.split}: {', '.join(methods)} with {replay or choice.preset} into {out}")
    try:
        with Bar(quiet) as bar:
            store = run(
                engine,
                opened,
                out,
                methods=methods,
                limit=limit,
                offset=offset,
                seeds=seeds,
                resume=resume,
                preset=preset_of(configuration.preset, replay),
                variant=variant,
                evidence=evidence,
                progress=bar,
                retry_errors=retry_errors,
                missing_pictures=missing_pictures or ("stop" if replay is None else "skip"),
            )
    except KeyboardInterrupt:
        warn(f"stopped; every finished row is in {out}. To go on: {_again()}")
        raise typer.Exit(130) from None
    with store:
        summary = summary_of(store)
        print("\n".join(summary_lines(store.info, summary, store.pace())))
    if summary.coverage.share > max_failed:
        warn(f"more than --max-failed {max_failed:g}. When what was wrong is mended: {_again('--retry-errors')}")
        raise typer.Exit(1)


def _runner(where: str, address: str | None, actors: int | None, record: bool) -> Callable[..., Store]:
    """Returns what evaluates: the engine of this process, or those that Ray spreads.

    Raises:
        InputError: there is no such engine, or options are for another.
    """
    from ..core.errors import InputError

    if where not in ("local", "ray"):
        raise InputError(f"No engine {where!r}.", hint="There are: local, ray.")
    if where == "ray":
        from ..eval.ray import evaluate as spread

        return partial(spread, address=address, actors=actors, one_machine=record)
    if address is not None or actors is not None:
        raise InputError("--ray-actors needs --engine ray.")
    from ..eval.run.runner import evaluate as run

    return run


def _again(*more: str) -> str:
    words = sys.argv[1:]
    return shlex.join(["codevqa", *words, *(one for one in ("--resume", *more) if one not in words)])
