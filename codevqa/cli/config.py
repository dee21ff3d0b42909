"""``codevqa config``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from .configured import Compat, Config, LanguageModel, Preset, PromptForm, Sets, chosen

if TYPE_CHECKING:
    from ..presets.configuration import Configuration


def config(
    preset: Preset = None,
    config: Config = None,
    compat: Compat = None,
    language_model: LanguageModel = None,
    form: PromptForm = None,
    sets: Sets = None,
) -> None:
    """Print every setting and model as TOML, with its origin.

    Loads no model. Save the output, edit it, and give it to --config or --preset.
    """
    from ..presets.configuration import configure

    choice = chosen(preset, config, compat, sets, language_model=language_model, form=form)
    print("\n".join(_lines(configure(choice.preset, choice.layers).here())))


def _lines(configuration: Configuration) -> Iterator[str]:
    from ..presets.assembly import LOADERS, options_of
    from ..presets.configuration import public
    from ..presets.fields import flat, written

    origins = configuration.origins
    tables: dict[str, dict[str, object]] = {"": {}}
    for name, value in flat(configuration.settings).items():
        table, _, field = name.rpartition(".")
        tables.setdefault(table, {})[field] = value
    absent = {role: None for role in LOADERS if role not in configuration.parts}
    yield f"preset = {written(configuration.preset)}"
    for table, values in tables.items():
        yield from _table(table, values | ({} if table else absent), origins)
    for role, spec in configuration.parts.items():
        given = configuration.options.get(role, {})
        shown = {name: value for name, value in public(given).items() if value == given[name]}
        known = options_of(role, spec) or {}
        yield from _table(role, {"spec": spec, **shown}, {f"{role}.spec": origins[role], **origins})
        if hidden := ", ".join(name for name in given if name not in shown):
            yield f"# given, and not shown: {hidden}"
        if others := ", ".join(name for name in known if name not in given):
            yield f"# takes as well: {others}"


def _table(name: str, values: Mapping[str, object], origins: Mapping[str, str]) -> Iterator[str]:
    from ..presets.fields import written

    if name:
        yield f"\n[{name}]"
    before = f"{name}." if name else ""
    for field, value in values.items():
        origin = origins.get(before + field, "default")
        yield f"{f'{field} = {written(value)}':<40}  # {origin.encode('unicode_escape').decode()}"
