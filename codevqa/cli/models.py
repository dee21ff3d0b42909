"""``codevqa config``, ``models``, ``download`` and ``convert``: what answers, and how it gets here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from .options import Chosen, Config, Include, Json, LanguageModel, Sets, choose_options, including
from .printing import print_json, print_text
from .terminal import warn

if TYPE_CHECKING:
    from ..models.domain import Domain
    from ..presets.configuration import Configuration


def config(choice: Chosen) -> None:
    """Print every setting and model as TOML, with its origin.

    Loads no model. Save the output, edit it, and give it to --config or --preset.
    """
    print_text(*config_lines(choice.configure().here()))


def config_lines(configuration: Configuration) -> Iterator[str]:
    """Yields the lines of a configuration as TOML; keys and passwords are named and not shown."""
    from ..presets.back_ends import LOADERS, options_of
    from ..presets.configuration import flat, public, tables, toml_value

    origins = configuration.origins
    absent = {role: None for role in LOADERS if role not in configuration.parts}
    yield f"preset = {toml_value(configuration.preset)}"
    for table, values in tables(flat(configuration.settings)).items():
        yield from _table(table, values | ({} if table else absent), origins)
    for role, spec in configuration.parts.items():
        role_options = configuration.options.get(role, {})
        shown = {name: value for name, value in public(role_options).items() if value == role_options[name]}
        known = options_of(role, spec)
        yield from _table(role, {"spec": spec, **shown}, {f"{role}.spec": origins[role], **origins})
        if hidden := ", ".join(name for name in role_options if name not in shown):
            yield f"# given, and not shown: {hidden}"
        if others := ", ".join(name for name in known if name not in role_options):
            yield f"# takes as well: {others}"


def _table(name: str, values: Mapping[str, object], origins: Mapping[str, str]) -> Iterator[str]:
    from ..presets.configuration import toml_value

    if name:
        yield f"\n[{name}]"
    before = f"{name}." if name else ""
    for field, value in values.items():
        origin = origins.get(before + field, "default")
        yield f"{f'{field} = {toml_value(value)}':<40}  # {origin.encode('unicode_escape').decode()}"


def models(
    only: Annotated[str | None, Argument(metavar="PRESET", help="This one alone.")] = None,
    json: Json = False,
    include: Include = None,
) -> None:
    """List the presets, what each knows and needs, and what plugins add.

    Loads and downloads nothing.
    """
    from .. import plugins
    from ..presets.assembly import domain_of
    from ..presets.checkpoints import amount
    from ..presets.configuration import already_cached, configure
    from ..presets.presets import PRESETS, preset

    including(include)
    wanted = PRESETS if only is None else {only: preset(only)}
    rows: dict[str, dict[str, Any]] = {
        name: {
            "about": spec.about,
            "measured": spec.measured,
            "parts": {
                role: _part_entry(spec)
                for role, spec in {**spec.parts, "language_model": spec.language_model, **already_cached(spec)}.items()
            },
            "prompts": {str(form): name for form, name in spec.prompts.items()},
            **_domain_entry(domain_of(configure(name))),
        }
        for name, spec in wanted.items()
    }
    if json:
        print_json(rows)
        return
    for name, row in rows.items():
        print_text(f"{name}: {row['about']}\n  {'measured':<15} {row['measured']}")
        for role, part in row["parts"].items():
            print_text(f"  {role:<15} {part['id'] or part['missing']}")
            if part["id"] and part["missing"]:
                about = f"about {amount(part['bytes'])}" if part["bytes"] else "size unknown until then"
                print_text(f"  {'':<15}   {part['missing']}; {about}")
            elif part["id"]:
                print_text(f"  {'':<15}   here: {amount(part['bytes'])} on disk; {part['place']}")
        print_text(f"  {'prompts':<15} {', '.join(f'{form}: {prompts}' for form, prompts in row['prompts'].items())}")
        for kind, words in row.get("knows", {}).items():
            text = fill(f"{len(words)}: {', '.join(words)}", 110, subsequent_indent=" " * 18)
            print_text(f"  {kind:<15} {text}")
        if row.get("picture"):
            print_text(f"  {'in a picture':<15} {row['picture']}")
        if row.get("try"):
            print_text(f"  {'try':<15} {' or '.join(row['try'])}")
    for role in (*plugins.ROLES, "dataset", "primitive"):
        for name in plugins.names(role):
            print_text(f"{name}: {role} of a plugin")


def _domain_entry(domain: Domain | None) -> dict[str, Any]:
    if domain is None:
        return {}
    picture = None if domain.picture is None else str(domain.picture)
    return {"knows": dict(domain.knows), "picture": picture, "try": list(domain.questions)}


def _part_entry(spec: str | None) -> dict[str, Any]:
    from ..presets.checkpoints import expected_bytes, find_checkpoint, missing, size

    why = missing(spec)
    place = None if spec is None or why else find_checkpoint(spec)
    if spec is None or place is None:
        return {"id": spec, "missing": why, "place": None, "bytes": expected_bytes(spec) if spec else None}
    return {"id": spec, "missing": "", "place": str(place), "bytes": size(place)}


def download(
    preset: Annotated[str, Argument(metavar="PRESET", help="base, large, paper, or a file such as my.toml.")],
    config: Config = None,
    language_model: LanguageModel = None,
    sets: Sets = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only list what would be downloaded, with sizes.")] = False,
) -> None:
    """Download the models of a preset, to use it without a network.

    Keeps files that are already here, and checks new ones against the hub's hashes.
    """
    from ..presets.checkpoints import fetch, missing

    choice = choose_options(preset, config, sets=sets, language_model=language_model)
    parts = choice.configure().parts
    lacked = fetch(parts.values(), print_text, choice.preset, only_tell=dry_run)
    lacks = {} if lacked and dry_run else {spec: why for spec in parts.values() if (why := missing(spec))}
    for spec, why in lacks.items():
        warn(f"{spec}: {why}")
    if not lacked and not lacks:
        print_text(f"Everything of {preset} is here.")


def convert(
    file: Annotated[Path, Argument(metavar="FILE.pth", help="A BLIP matcher or captioner as LAVIS saves it.")],
    out: Annotated[Path, Argument(metavar="OUT", help="Folder to create.")],
    vocabulary: Annotated[Path | None, Option(help="Its vocab.txt. Default: bert-base-uncased's.")] = None,
) -> None:
    """Convert a LAVIS checkpoint to a folder that blip: loads."""
    from ..models.blip.lavis_names import convert_lavis

    kind = convert_lavis(file, vocabulary, out)
    warn(f"{out} is a {kind}: blip:{out}")
