"""What decides an engine's answers, as one short name: under it they are remembered on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

from .. import __version__
from ..core.settings import Settings
from .assembly import prompt_sets
from .checkpoints import find_checkpoint
from .configuration import Configuration, public
from .presets import preset

FREE = frozenset(("workers", "batch_wait", "max_batch", "remember", "fresh", "ahead", "chart"))
"""Settings that change no answer."""
_ENDINGS = (".safetensors", ".bin", ".pth", ".pt")


def weight_files(spec: str) -> dict[str, Path]:
    """Returns the weight files of a part that lie on this machine, by their names in its checkpoint.

    Args:
        spec: ``back end:id``. A server's model has no files here.
    """
    place = find_checkpoint(spec)
    if place is None:
        return {}
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.suffix in _ENDINGS)
    base = place.parent if place.is_file() else place
    return {path.relative_to(base).as_posix(): path for path in files if path.is_file()}


def answering_settings(settings: Settings) -> dict[str, object]:
    """Returns the settings that may change an answer, as plain data."""
    return {name: value for name, value in dataclasses.asdict(settings).items() if name not in FREE}


def identity_of(configuration: Configuration) -> str:
    """Returns the SHA-256 of all that decides answers, in 16 digits: models, settings, prompts, version. Loads none.

    Weights are known by their files' sizes and times, a server by its address. A back end of the user's is known by
    its name and options alone.
    """
    here = configuration.here()
    parts = {}
    for role, spec in sorted(here.parts.items()):
        stamps = {name: (path.stat().st_size, path.stat().st_mtime_ns) for name, path in weight_files(spec).items()}
        parts[role] = (spec, public(here.options.get(role, {})), stamps)
    sets = prompt_sets(preset(here.preset), here.settings.prompts)
    prompts = {form: dataclasses.asdict(prompts) for form, prompts in sorted(sets.items())}
    whole = (__version__, parts, answering_settings(here.settings), prompts)
    return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()[:16]
