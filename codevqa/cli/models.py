"""``codevqa models``."""

from __future__ import annotations

from typing import Annotated

import typer


def models(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """List the presets, what each needs, and what is missing on this machine. Loads and fetches nothing."""
    from ..presets.assembly import missing
    from ..presets.presets import PRESETS

    rows = {
        name: {
            "about": one.about,
            "parts": {role: {"id": spec, "missing": missing(spec)} for role, spec in one.parts.items()},
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
            print(f"  {role:<15} {part['id']:<52} {part['missing'] or 'here'}")
        shown = ", ".join(f"{form}: {prompts}" for form, prompts in row["prompts"].items())  # type: ignore[attr-defined]
        print(f"  {'prompts':<15} {shown}")
