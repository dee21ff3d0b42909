"""``codevqa eval`` and ``codevqa reproduce``."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Exit, Option

from ..core.errors import InputError, UnknownNameError
from .options import (
    Chosen,
    Config,
    Force,
    LanguageModel,
    Quiet,
    RayActors,
    RayAddress,
    Sets,
    Where,
    check_ray,
    choose_options,
    needs,
)
from .printing import print_text
from .terminal import Bar, hush, print_figures, warn

if TYPE_CHECKING:
    from ..eval.run.store import Store


def evaluate(
    dataset: Annotated[
        str,
        Argument(
            metavar="DATASET", help="gqa, covr, nlvr2, nlvr, vqav2, okvqa, vhs, questions.jsonl, or hf://OWNER/NAME."
        ),
    ],
    out: Annotated[Path, Option(help="Folder of the run.")],
    data: Annotated[str | None, Option(help="Folder of the data set, or hf://OWNER/NAME for its tables.")] = None,
    split: Annotated[
        str | None, Option(help="Default: the split that papers report; of hf://OWNER/NAME, test.")
    ] = None,
    image: Annotated[
        str | None, Option(metavar="COLUMN", help="hf://OWNER/NAME: the pictures.", show_default="image or images")
    ] = None,
    question: Annotated[
        str | None, Option(metavar="COLUMN", help="hf://OWNER/NAME: the questions.", show_default="question")
    ] = None,
    answer: Annotated[
        str | None, Option(metavar="COLUMN", help="hf://OWNER/NAME: the answers.", show_default="answer or answers")
    ] = None,
    method: Annotated[
        str,
        Option(
            metavar="METHOD,...",
            help="codevqa, direct and pnpvqa, with commas between; both: codevqa,pnpvqa; all: what the models can do.",
        ),
    ] = "all",
    limit: Annotated[int | None, Option(min=0, help="Questions at most. Can grow with --resume.")] = None,
    offset: Annotated[int, Option(min=0, help="Skip this many questions at the start.")] = 0,
    sample: Annotated[int | None, Option(help="Draw this many questions at random. Groups stay whole.")] = None,
    sample_seed: Annotated[int | None, Option(help="Seed of the sample.", show_default="0")] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out, if there is one.")] = False,
    retry_errors: Annotated[bool, Option("--retry-errors", help="Ask again what could not be asked.")] = False,
    missing_pictures: Annotated[
        Literal["stop", "skip"], Option(help="Stop before models load, or skip the questions.")
    ] = "stop",
    max_failed: Annotated[
        float, Option(min=0, max=1, help="Exit with status 1 if a larger share could not be asked.")
    ] = 0.05,
    seed: Annotated[int | None, Option(help="Seed for sampling captions.")] = None,
    seeds: Annotated[int, Option(min=1, help="Ask each question this many times, with seed, seed + 1, ...")] = 1,
    workers: Annotated[int | None, Option(help="Number of questions answered at once.")] = None,
    variant: Annotated[str, Option("--variant", "--metric", help="Variant of the metric.")] = "",
    group_by: Annotated[
        list[str] | None, Option(metavar="FIELD", help="Your own questions: break figures down by it; repeatable.")
    ] = None,
    permutations: Annotated[int | None, Option(help="NLVR: how many of a statement's six pictures to ask.")] = None,
    record: Annotated[bool, Option("--record", help="Keep every model call in --out, for --replay.")] = False,
    replay: Annotated[Path | None, Option(help="Answer from a recorded run, without models.")] = None,
    force: Force = None,
    where: Where = "local",
    ray_address: RayAddress = None,
    ray_actors: RayActors = None,
    quiet: Quiet = False,
    *,
    choice: Chosen,
) -> None:
    """Evaluate programs and baselines on a data set.

    Saves every finished question. --resume continues an interrupted run, with the same settings.
    """
    from ..eval.datasets import HubColumns, open_dataset
    from ..eval.datasets.hub import SCHEME
    from ..eval.datasets.loader import sample as draw
    from ..eval.metrics import metric_for
    from ..eval.run.choices import engine_for, methods_for
    from ..eval.run.runner import evaluate as ask
    from ..plugins import included

    needs("--sample-seed", sample_seed is not None, "--sample", sample is not None)
    needs("--retry-errors", retry_errors, "--resume", resume)
    check_ray(where, ray_address, ray_actors)
    needs("--record", record, "--engine local", where == "local")
    if included and where == "ray":
        raise InputError("--include does not go with --engine ray.", hint="Install your parts as a package.")
    for option, column in {"--image": image, "--question": question, "--answer": answer}.items():
        needs(option, column, "hf://OWNER/NAME", dataset.startswith(SCHEME))
    columns = HubColumns(image, question, answer)
    opened = open_dataset(dataset, data, split, permutations=permutations, group_by=group_by or (), columns=columns)
    if sample is not None:
        opened = draw(opened, sample, sample_seed or 0)
    choice = choice.but(seed=seed, workers=workers, force=force)
    configuration = choice.configure()  # a mistake is told before anything is asked
    methods = methods_for(method, configuration, replay)
    variant = variant or next((layer.origin.split()[1] for layer in choice.layers if layer.optional), "")
    metric_for(opened.name, variant)  # a wrong name should not cost a run
    engine: Callable[[], Any] = engine_for(
        opened, choice.preset, choice.layers, record=out if record else None, replay=replay
    )
    if where == "ray":
        from ..eval.ray import ActorPool

        engine = partial(ActorPool, engine, actors=ray_actors, address=ray_address)
    if quiet:
        hush()
    else:
        for note in opened.notes:
            warn(note)
        warn(f"{opened.name} {opened.split}: {', '.join(methods)} with {replay or choice.preset} into {out}")
    store = _run_questions(
        partial(ask, engine, opened, out),
        quiet,
        _again("--resume"),
        methods=methods,
        limit=limit,
        offset=offset,
        seeds=seeds,
        resume=resume,
        variant=variant,
        retry_errors=retry_errors,
        missing_pictures=missing_pictures,
    )
    with store:
        share = print_figures(store).coverage.share
    if share > max_failed:
        again = _again("--resume", "--retry-errors")
        warn(f"more than --max-failed {max_failed:g}. When what was wrong is mended: {again}")
        raise Exit(1)


def _run_questions(run: Callable[..., Store], quiet: bool, again: str, **options: Any) -> Store:
    """Asks, and shows how far it is; an interrupt says how to go on."""
    try:
        with Bar(quiet) as bar:
            return run(progress=bar, **options)
    except KeyboardInterrupt:
        warn(f"stopped; every finished row is kept. To go on: {again}")
        raise Exit(130) from None


def _again(*more: str) -> str:
    """Returns this command with more options."""
    words = sys.argv[1:]
    return shlex.join(["codevqa", *words, *(word for word in more if word not in words)])


def reproduce(
    dataset: Annotated[str, Argument(metavar="DATASET", help="gqa, covr or nlvr2.")],
    data: Annotated[Path, Option(help="Folder of the downloaded data set.")],
    out: Annotated[Path | None, Option(help="Folder of the run. Default: runs/paper-DATASET.")] = None,
    language_model: LanguageModel = None,
    release: Annotated[
        Path | None, Option(metavar="FOLDER", help="A checkout of the paper's release, for its prompts.")
    ] = None,
    split: Annotated[str | None, Option(help="Another split than the paper's.")] = None,
    limit: Annotated[int | None, Option(min=1, help="Ask at most this many questions.")] = None,
    config: Config = None,
    sets: Sets = None,
    quiet: Quiet = False,
) -> None:
    """Run the paper's evaluation and print both sets of figures.

    Uses the preset paper with --compat release, and your language model. --release brings the release's prompts.
    Continues a run that exists, and writes the report into it.
    """
    from ..eval.datasets import open_dataset
    from ..eval.report.report import write_report
    from ..eval.reproduce import SPLITS, require_answers, table_lines
    from ..eval.run.choices import BLIP, engine_for
    from ..eval.run.runner import evaluate
    from ..presets.assembly import whole
    from ..prompts import find_pool, load_prompt_set

    if dataset not in SPLITS:
        raise UnknownNameError(f"The paper has no table of {dataset!r} to set up.", hint="gqa, covr or nlvr2.")
    choice = choose_options("paper", config, "release", sets, language_model=language_model)
    if release is not None:
        finds = "detector" in choice.configure().parts
        choice = choice.but(prompts=str(find_pool(release, dataset, finds=finds)))
    configuration = whole(choice.configure())
    opened = open_dataset(dataset, data, split or SPLITS[dataset])
    folder = out or Path("runs", f"paper-{dataset}")
    if not quiet:
        prompt_set = load_prompt_set(configuration.settings.prompts or opened.prompts)
        whose = prompt_set.about if prompt_set.wording == "release" else "of this project, not of the release"
        warn(f"prompts: {prompt_set.name}, {whose}")
    require_answers(opened, limit)
    engine = engine_for(opened, choice.preset, choice.layers)
    run = partial(evaluate, engine, opened, folder, methods=BLIP)
    with _run_questions(run, quiet, _again(), limit=limit, resume=True, variant="release") as store:
        print_text("", *table_lines(store))
    print_text(str(write_report([folder]).page))
