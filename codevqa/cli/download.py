"""``codevqa download``."""

from __future__ import annotations

from typing import Annotated

import typer

from .configured import Config, LanguageModel, Sets, chosen


def download(
    preset: Annotated[str, typer.Argument(metavar="PRESET", help="base, large, paper, or a file such as my.toml.")],
    config: Config = None,
    language_model: LanguageModel = None,
    sets: Sets = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be downloaded, with sizes.")] = False,
) -> None:
    """Download the models of a preset, to use it without a network.

    Keeps files that are already here, and checks new ones against the hub's hashes.
    """
    from ..presets.assembly import missing
    from ..presets.configuration import configure
    from ..presets.fetching import amount, bring, plan, room
    from .show import warn

    choice = chosen(preset, config, None, sets, language_model=language_model)
    parts = configure(choice.preset, choice.layers).parts
    wanted = plan(parts.values(), choice.preset)
    for one in wanted:
        print(f"{amount(one.size):>12}  {one.name}")
    if wanted:
        print(f"{amount(sum(one.size or 0 for one in wanted)):>12}  to come; {amount(room())} free")
        if not dry_run:
            bring(wanted)
    lacks = {} if wanted and dry_run else {spec: why for spec in parts.values() if (why := missing(spec))}
    for spec, why in lacks.items():
        warn(f"{spec}: {why}")
    if not wanted and not lacks:
        print(f"Everything of {preset} is here.")
