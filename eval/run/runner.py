"""Evaluates: streams a data set through an engine into a store, and goes on where it stopped.

At most a window of examples is under way at a time, so memory does not grow with the data set. All methods, and every
repetition, are asked about the same pictures, loaded once. How a session goes is in :mod:`.session`, how an example is
answered in :mod:`.local`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Literal

from ...core.errors import InputError
from ...core.trace import Method
from ...engine.codevqa import CodeVQA
from ...engine.request import check_method
from ..task import METHODS, DataSet, Located
from .local import Answerer, LocalAnswerer
from .provenance import with_data
from .run_info import RunInfo
from .session import Progress, Session
from .store import Store


def evaluate(
    engine: CodeVQA | Callable[[], CodeVQA | Answerer],
    dataset: DataSet,
    out: Path | str,
    *,
    methods: Sequence[Method] | None = None,
    limit: int | None = None,
    offset: int = 0,
    seeds: int = 1,
    resume: bool = False,
    variant: str = "",
    progress: Progress | None = None,
    retry_errors: bool = False,
    missing_pictures: Literal["stop", "skip"] = "stop",
) -> Store:
    """Evaluates an engine on a data set.

    Args:
        engine: the engine, or what makes it or engines elsewhere; what is made here is closed here.
        dataset: the data set.
        out: folder of the run.
        methods: what is asked of each example: ``codevqa`` and the baselines ``direct`` and ``pnpvqa``. None takes all
            that the engine's models can do.
        limit: examples at most; None asks all of them.
        offset: examples left out at the start.
        seeds: how often to ask, with the engine's seed and those after it.
        resume: go on with the run that is there, or begin it where there is none.
        variant: variant of the metric, for the record.
        progress: told how far the run is, after each example.
        retry_errors: ask again what could not be asked before, as where a picture was missing; with ``resume``.
        missing_pictures: stop before models are loaded where pictures are missing, or ask the rest; the questions
            about those are rows with an error all the same.

    Returns:
        The store, open; close it. An interrupt (Ctrl-C) ends the run with every finished row kept.

    Raises:
        InputError: the options make no sense, there is nothing to ask, pictures are missing, the run is there and
            ``resume`` is not set, or it was made with other settings or data.
        ServerError: a model server went down.
        ModelError: a model fails for every question.
        SetupError: the disk is full, or the engine cannot serve this data set or do one of the methods.
    """
    if (methods is not None and (not methods or not set(methods) <= set(METHODS))) or seeds < 1:
        raise InputError("There is nothing to ask: give at least one method and one seed.")
    if offset < 0 or (limit is not None and limit < 1):
        raise InputError("An offset is not negative, and a limit at least 1.", hint="Leave it out to ask all.")
    if retry_errors and not resume:
        raise InputError("There is nothing to ask again in a new run.", hint="Give --resume with --retry-errors.")
    if Store.exists(out) and not resume:
        Store.create(out, RunInfo(dataset.name, dataset.split, ()))  # raises
    questions, ends, pictures = look_over(dataset, offset, limit, pictures=missing_pictures == "stop")
    vqa = engine if isinstance(engine, CodeVQA) else engine()
    answerer = LocalAnswerer(vqa) if isinstance(vqa, CodeVQA) else vqa
    try:
        info = with_data(answerer.info, dataset)
        for method in methods or ():
            check_method(method, info.methods)
        first = info.settings["seed"]
        methods = tuple(dict.fromkeys(methods or info.methods))
        check_limit(info, methods, pictures)
        info = replace(info, methods=methods, seeds=tuple(range(first, first + seeds)), variant=variant)
        info = replace(info, offset=offset, limit=limit, questions=questions, ends=ends)
        with ExitStack() as kept_open:
            run = kept_open.enter_context(open_run(out, info))
            if dataset.name == "own" and len(run):  # only there are groups an option: --group-by
                run.regroup(dataset)
            Session(run, dataset, answerer, info, progress, retry_errors).run()
            kept_open.pop_all()
        return run
    finally:
        if vqa is not engine:
            answerer.close()


def open_run(out: Path | str, info: RunInfo) -> Store:
    """Opens a run to go on with, or begins it.

    Raises:
        InputError: the run that is there differs in something that decides what it finds.
    """
    if not Store.exists(out):
        return Store.create(out, info)
    store = Store.open(out, writable=True)
    differences = store.info.differences(info)
    if not differences and (picture := store.changed_picture()):
        differences = [f"{picture} has changed since it was asked about"]
    if differences:
        store.close()
        raise InputError(
            f"The run {out} cannot go on like this: {'; '.join(differences)}.",
            hint="Ask as before, or choose another --out.",
        )
    store.update(store.info.grown(info))
    return store


def check_limit(info: RunInfo, methods: Sequence[Method], pictures: int) -> None:
    """Refuses to ask a vision-language model about more pictures at once than its chart saw answered.

    Raises:
        InputError: a question has more, and nobody said that it is asked all the same.
    """
    limit = info.settings["query"]["pictures"]
    if "direct" in methods and limit is not None and pictures > limit and not info.settings["query"]["over_limit"]:
        raise InputError(
            f"Questions have up to {pictures:,} pictures, and the model of the method direct was seen to answer about "
            f"{limit:,} at once ({info.settings['chart'] or 'query.pictures'}).",
            hint="Leave direct out, or give --force: the report will say so.",
        )


def look_over(dataset: DataSet, offset: int, limit: int | None, *, pictures: bool) -> tuple[int, bool, int]:
    """Reads through what will be asked, before a model is loaded.

    Args:
        dataset: the data set.
        offset: examples left out at the start.
        limit: examples at most after those.
        pictures: whether the pictures have to be there.

    Returns:
        How many ids there are to ask about, whether the data set ends with them, and the most pictures of one.

    Raises:
        InputError: there is nothing to ask, or pictures are missing or unreadable.
    """
    end = None if limit is None else offset + limit
    checked: dict[Located, str] = {}
    ids: set[str] = set()
    count = most = 0
    for count, example in enumerate(dataset, 1):
        if end is not None and count > end:
            break
        if count > offset and example.id not in ids:
            ids.add(example.id)
            most = max(most, len(example.images))
            asked = {Located(image.path, image.member): image for image in example.images if pictures}
            checked |= {key: image.wrong for key, image in asked.items() if key not in checked}
    if not count:
        raise InputError(f"{dataset.name} {dataset.split} has no questions.", hint="Check its files.")
    if count <= offset:
        raise InputError(f"--offset {offset:,} is past the end: {dataset.split} has {count:,} questions.")
    if bad := [key for key, wrong in checked.items() if wrong]:
        how = " or ".join(dict.fromkeys(filter(None, checked.values())))
        raise InputError(
            f"{len(bad):,} of {len(checked):,} pictures are {how}, first: {bad[0]}.",
            hint="Put them there, or ask the rest with --missing-pictures skip.",
        )
    return len(ids), end is None or count <= end, most
