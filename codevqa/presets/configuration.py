"""A configuration: everything an engine is made from, put together in layers, each of which knows where it comes from.

    preset < preset file < --compat < --config < environment < command line

A layer holds values under dotted names: those of :class:`~codevqa.core.settings.Settings` (``query.captions``), of
parts (``matcher``, a ``back end:id``), and of their options (``matcher.dtype``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, get_type_hints

from ..core.errors import InputError, nearest
from ..core.input_files import parse_toml, read_text
from ..core.settings import Limits, QuerySettings, SetSettings, Settings, WriterSettings, check_value
from ..core.text import shown_address
from ..core.trace import Method, methods_of
from ..prompts import prompt_set_names
from .back_ends import LOADERS, options_of, parse_spec
from .presets import PRESETS, Preset, preset

DEFAULT = "default"
NONE = "none"
"""What stands for None, which TOML cannot write."""
_KINDS: Mapping[str, Any] = {
    table.table + name: kind
    for table in (Settings, WriterSettings, QuerySettings, Limits, SetSettings)
    for name, kind in get_type_hints(table, include_extras=True).items()
}
"""The annotation of each setting under its dotted name."""
_SECRET = frozenset(("api_key", "key", "password", "secret", "token"))


class Text(str):
    """A value as it stands on a command line, to be read as its field wants it."""

    __slots__ = ()


@dataclass(frozen=True)
class Layer:
    """Values under dotted names, and where they come from."""

    origin: str
    """Such as ``--set`` or a file's name."""
    values: Mapping[str, object]
    file: bool = False
    """Whether that is a file, which messages name."""
    optional: bool = False
    """Whether options are passed over that a part doesn't have."""


@dataclass(frozen=True)
class Configuration:
    """Everything an engine is made from. :func:`configure` makes it."""

    preset: str
    """The named preset it builds on."""
    settings: Settings
    parts: Mapping[str, str]
    """``back end:id`` by role."""
    options: Mapping[str, Mapping[str, Any]]
    """Arguments for loading a part, by role."""
    origins: Mapping[str, str]
    """Where each value comes from, by its dotted name."""
    layers: tuple[Layer, ...]
    """What it was put together from, over the preset."""

    @property
    def methods(self) -> tuple[Method, ...]:
        """The methods that its models can do."""
        return methods_of(eyes="eyes" in self.parts, reads=self.grounds and "captioner" in self.parts)

    @property
    def grounds(self) -> bool:
        """Whether its matcher tells where in a picture a text looks."""
        matcher = self.parts.get("matcher")
        return matcher is not None and parse_spec("matcher", matcher)[0].grounds

    def here(self) -> Configuration:
        """Returns what this machine runs.

        That is what the preset prefers of what lies in the hub's cache, and without a GPU, where PyTorch can, its
        quantised language model. A part or a precision that was asked for stays.
        """
        chosen, layers = preset(self.preset), list(self.layers)
        if cached := already_cached(chosen):
            layers.insert(0, Layer(f"preset {self.preset}, in the hub's cache", cached))
        asked = {"language_model", "language_model.spec", "language_model.dtype"}
        if chosen.without_gpu and not any(asked & layer.values.keys() for layer in self.layers):
            import torch

            from ..models.causal_lm.int8_linear import available

            if available() and not torch.cuda.is_available():
                layers.insert(0, Layer(f"preset {self.preset} without a GPU", chosen.without_gpu))
        return self if len(layers) == len(self.layers) else configure(self.preset, layers)


def already_cached(chosen: Preset) -> dict[str, str]:
    """Returns the parts that a preset prefers where they need no download, and that need none on this machine."""
    if not chosen.if_cached:
        return {}
    from .checkpoints import find_checkpoint  # it brings an HTTP client

    return {role: spec for role, spec in chosen.if_cached.items() if find_checkpoint(spec)}


def configure(name: str = "mini", layers: Iterable[Layer] = (), *, settings: Settings | None = None) -> Configuration:
    """Puts a configuration together. Loads no model.

    Args:
        name: a preset, or a TOML file that may name the preset it builds on.
        layers: each over those before it.
        settings: settings in place of the preset's, below the layers.

    Raises:
        UnknownNameError: no such preset or back end.
        InputError: no such field, or a value that it cannot have; the file cannot be read.
    """
    layers = list(layers)
    if name.endswith(".toml"):
        base, first = read_file(Path(name))
        name, layers = base or "mini", [first, *layers]
    chosen = preset(name)
    own = f"preset {name}"
    usual, values, parts = flat(Settings()), flat(chosen.settings), dict(chosen.parts)
    if settings is not None:
        changes = {key: value for key, value in flat(settings).items() if value != values[key]}
        layers = [Layer("given", changes), *layers]
    origins = {key: DEFAULT if values[key] == usual[key] else own for key in values}
    origins |= dict.fromkeys(parts, own)
    options: dict[str, dict[str, Any]] = {}
    # Options come last: those of a layer are of whatever the part is in the end.
    entries = [
        (_is_option(field), source, field.removesuffix(".spec"), field) for source in layers for field in source.values
    ]
    for is_option, layer, field, as_given in sorted(entries, key=itemgetter(0)):
        value, (role, _, inner) = layer.values[as_given], field.partition(".")
        try:
            if is_option:
                kind = _kind(parts, role, inner, field, optional=layer.optional)
                if kind is None:
                    continue
                options.setdefault(role, {})[inner] = _meant(field, value, kind)
            elif field in LOADERS:
                _choose(parts, field, _meant(field, value, str | None))
            elif field in values:
                values[field] = _meant(field, value, _KINDS[field])
            else:
                hint = "Give --preset." if field == "preset" else _nearest_hint(field, [*values, *LOADERS])
                raise InputError(f"No field {field}.", hint=hint)
        except InputError as error:
            where = f"{layer.origin}: " if layer.file else ""
            raise InputError(f"{where}{error.message}", hint=error.hint) from None
        origins[field] = layer.origin
    # Settings of a preset, too, may be of the model that it names.
    own_reader = parts.get("language_model") == chosen.language_model
    for field in () if own_reader else (key for key in chosen.for_its_language_model if origins[key] == own):
        values[field], origins[field] = usual[field], DEFAULT
    for role, spec in parts.items():
        # Options of a preset are of the model that it names.
        its = chosen.options.get(role, {}) if spec == chosen.parts.get(role) else {}
        origins = {f"{role}.{key}": own for key in its} | origins
        options[role] = {**its, **options.get(role, {})}
    return Configuration(name, _settings(values), parts, options, origins, tuple(layers))


def server_parts(name: str) -> dict[str, str]:
    """Returns the parts that a vision-language model on a server is: it writes the programs, and looks at pictures."""
    return {"language_model": f"openai-chat:{name}", "eyes": f"openai:{name}"}


def read_file(path: Path) -> tuple[str | None, Layer]:
    """Reads a TOML file: the preset it names, if any, and its values.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    data = parse_toml(read_text(path), str(path))
    base = data.pop("preset", None)
    if not (base is None or isinstance(base, str)):
        raise InputError(f"{path}: preset must be a text, not {base!r}.", hint=f"There are: {', '.join(PRESETS)}.")
    values = flatten_tables(data)
    prompts = values.get("prompts")
    if isinstance(prompts, str) and prompts not in (NONE, *prompt_set_names()):
        values["prompts"] = str((path.parent / prompts).absolute())  # beside the file, wherever it is used
    return base, Layer(str(path), values, file=True)


def public(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of a model without what must not be stored: keys, and passwords in addresses."""
    kept = {name: value for name, value in options.items() if name.lower() not in _SECRET}
    return {
        name: shown_address(value) if isinstance(value, str) and "://" in value else value
        for name, value in kept.items()
    }


def of_part(field: str) -> bool:
    """Says whether a dotted name is a part's or an option's, and no setting's."""
    return field.partition(".")[0] in LOADERS


def _is_option(field: str) -> bool:
    return of_part(field) and field.partition(".")[2] not in ("", "spec")


def _choose(parts: dict[str, str], role: str, spec: str | None) -> None:
    if spec is None:
        parts.pop(role, None)
    else:
        parse_spec(role, spec)  # a typing error should not cost the seconds of loading the parts before it
        parts[role] = spec


def _kind(parts: Mapping[str, str], role: str, name: str, field: str, *, optional: bool) -> Any:
    """Returns the annotation of an option, None where there is no such option and need not be."""
    if role not in parts and not optional:
        raise InputError(f"There is no {role} to set {field} of.", hint=f"Name one: {role}=BACKEND:ID.")
    known = options_of(role, parts[role]) if role in parts else {}
    if name not in known and not optional:
        hint = _nearest_hint(field, [f"{role}.{option}" for option in known])
        raise InputError(f"No option {field} of {parts[role].partition(':')[0]}.", hint=hint)
    return known.get(name)


def flat(settings: Settings) -> dict[str, Any]:
    """Returns settings under their dotted names."""
    return flatten_tables(asdict(settings))


def tables(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns values under dotted names by table; what is in none is under an empty name."""
    by_table: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        table, _, field = name.rpartition(".")
        by_table.setdefault(table, {})[field] = value
    return by_table


def flatten_tables(data: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Returns the values of nested tables under dotted names."""
    by_name: dict[str, Any] = {}
    for name, value in data.items():
        by_name |= flatten_tables(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return by_name


# -- single values -------------------------------------------------------------------------------------------------


def _settings(values: Mapping[str, Any]) -> Settings:
    """Returns the settings of values under dotted names."""
    usual, by_table = Settings(), tables(values)
    own = by_table.pop("")
    return replace(usual, **own, **{name: replace(getattr(usual, name), **mine) for name, mine in by_table.items()})


def _meant(name: str, value: object, kind: Any) -> Any:
    """Returns a value as a field of that annotation takes it: 2 as 2.0, "none" as None, a text of a command line as 2.

    Raises:
        InputError: it is out of range, or of another kind.
    """
    return check_value(name, None if value == NONE else value, kind, written=isinstance(value, Text))


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the name that was probably meant."""
    names = list(known)
    # A field is often given without its table: "captions" for "query.captions".
    inner = [candidate for candidate in names if candidate.rpartition(".")[2] == name.rpartition(".")[2]]
    hint = f"Did you mean {inner[0]}?" if inner else nearest(name, names)
    return hint or "'codevqa config' prints all there are."


def toml_value(value: object) -> str:
    """Returns a value as TOML writes it; None as "none"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    text = NONE if value is None else str(value)
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
