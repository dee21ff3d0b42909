"""``codevqa models``."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the presets, what each needs, and what is missing here.

    Loads and downloads nothing.
    """
    from ..presets.presets import PRESETS

    rows = {
        name: {
            "about": one.about,
            "parts": {role: _part(spec) for role, spec in {**one.parts, "language_model": one.language_model}.items()},
            "prompts": {str(form): name for form, name in one.prompts.items()},
        }
        for name, one in PRESETS.items()
    }
    if json:
        import json as encoder

        print(encoder.dumps(rows, ensure_ascii=False))
        return
    for name, row in rows.items():
        print(f"{name}: {row['about']}")
        for role, part in row["parts"].items():  # type: ignore[attr-defined]
            print(f"  {role:<15} {part['id'] or part['missing']}")
            if part["id"]:
                print(f"  {'':<15}   {_state(part)}")
        shown = ", ".join(f"{form}: {prompts}" for form, prompts in row["prompts"].items())  # type: ignore[attr-defined]
        print(f"  {'prompts':<15} {shown}")


def _part(spec: str | None) -> dict[str, Any]:
    from ..presets.checkpoints import lies, memory, missing, size

    why = missing(spec)
    place = None if spec is None or why else lies(spec)
    if spec is None or place is None:
        return {"id": spec, "missing": why, "place": None, "bytes": None, "memory": None}
    return {
        "id": spec,
        "missing": "",
        "place": str(place),
        "bytes": size(place),
        "memory": memory(spec, place),
    }


def _state(part: dict[str, Any]) -> str:
    from ..presets.fetching import amount

    if part["missing"]:
        return f"{part['missing']}; size unknown until then"
    disk, weights = amount(part["bytes"]), amount(part["memory"])
    return f"here: {disk} on disk, weights about {weights} in memory without a GPU; {part['place']}"
