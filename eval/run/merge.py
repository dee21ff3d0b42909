"""One run of several: shards of a data set, and the same questions asked with other seeds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...core.errors import InputError
from ...core.trace import Method
from .run_info import RunInfo
from .store import Store


def merge_runs(runs: Sequence[Path], out: Path) -> int:
    """Pools runs in a new folder, which is a run as any other: it may be reported on, gone on with, and merged again.

    Recorded calls stay where they are.

    Args:
        runs: two or more, of the same data set with the same settings, models and weights.
        out: the new run.

    Returns:
        How many rows it has.

    Raises:
        InputError: something is no run, the runs do not belong together, or two have the same question with the same
            seed.
        SetupError: the new run cannot be written.
    """
    if len(runs) < 2:
        raise InputError("There is nothing to merge in one run.", hint="Give two or more.")
    with ExitStack() as stack:
        stores = [stack.enter_context(Store.open(path)) for path in runs]
        stores.sort(key=lambda store: (store.info.offset, store.info.seeds))
        for other in stores[1:]:
            if differences := _comparable(stores[0].info).differences(_comparable(other.info)):
                raise InputError(
                    f"{stores[0].folder} and {other.folder} are no parts of one run: {'; '.join(differences)}.",
                    hint="Merge what was asked alike.",
                )
        _refuse_overlap(stores)
        merged = stack.enter_context(Store.create(out, _merged_info([store.info for store in stores])))
        for store in stores:
            if (pace := store.pace()) is not None:
                merged.end_session(pace)
            for method, repeat in store.counts():
                number = merged.info.seeds.index(store.info.seeds[repeat])
                for example, row in store.pairs(method, repeat):
                    known = store.find_example(example.id)
                    merged.add(example, [replace(row, repeat=number)], place=known[0] if known else None)
        return sum(merged.counts().values())


def _comparable(info: RunInfo) -> RunInfo:
    """Returns a run without what its parts may differ in."""
    settings = dict(info.settings)
    if dict(settings.get("writer", {})).get("selection") != "random":  # that draws examples of programs by the seed
        settings.pop("seed", None)
    return replace(info, seeds=(), offset=0, settings=settings)


def _refuse_overlap(stores: Sequence[Store]) -> None:
    seen: dict[tuple[str, Method, int], Store] = {}
    for store in stores:
        for method, repeat in store.counts():
            seed = store.info.seeds[repeat]
            for row in store.rows(method, repeat):
                other = seen.setdefault((row.id, method, seed), store)
                if other is not store:
                    raise InputError(
                        f"Question {row.id} was asked in {other.folder} and in {store.folder} with seed {seed}.",
                        hint="Leave one of them out.",
                    )


def _merged_info(infos: Sequence[RunInfo]) -> RunInfo:
    """Returns what the runs are together."""
    first, last = infos[0], max(infos, key=lambda info: info.offset + (info.questions or 0))
    return replace(
        first,
        methods=tuple(dict.fromkeys(method for info in infos for method in info.methods)),
        seeds=tuple(dict.fromkeys(seed for info in infos for seed in info.seeds)),
        limit=None if last.limit is None else last.offset + last.limit - first.offset,
        questions=None if last.questions is None else last.offset + last.questions - first.offset,
        ends=last.ends,
        started=min(info.started for info in infos),
    )
