"""The back ends: what loads each part of an engine, and what it takes. A new one needs its module and a row here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from operator import attrgetter
from typing import Any, Literal, get_type_hints

from .. import plugins
from ..core.errors import UnknownNameError, nearest
from ..models.options import Average, CaptionerOptions, LavisOptions, MatcherOptions, ServerOptions


@dataclass(frozen=True)
class BackEnd:
    """What loads a part. Its module is imported when it is needed: ``codevqa --help`` waits for none."""

    target: str
    """``module:name`` among :mod:`codevqa.models`, called with an id; the part's options are its keyword arguments."""
    takes: Mapping[str, Any]
    """The annotation of each option, so that a mistake is told before PyTorch is imported."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Options that the back end chooses itself."""
    runs: Literal["here", "server", "lavis", "own"] = "here"
    """Where its models run: from a checkpoint on this machine, on a server, in LAVIS's own environment, or as the
    plugin that made them pleases."""
    grounds: bool = True
    """For a matcher: whether it tells where in a picture a text looks, as PnP-VQA needs."""
    owner: str = ""
    """Whose a name of the hub is that tells no owner."""
    factory: Callable[..., Any] | None = None
    """For a plugin's: what is called in place of the target, without an id."""

    @property
    def maker(self) -> Any:
        """What is called."""
        if self.factory is not None:
            return self.factory
        module, _, name = self.target.partition(":")
        return attrgetter(name)(import_module(f"..models.{module}", __package__))

    def load(self, name: str, **options: Any) -> Any:
        """Loads a part."""
        return self.maker(*([name] if name else ()), **self.fixed, **options)


_PLACE: Mapping[str, Any] = {"device": str | None, "dtype": str | None}
_LANGUAGE_MODEL: Mapping[str, Any] = {**_PLACE, "max_batch": int | None, "prefix_cache_bytes": int, "loop": bool}
_SERVER = get_type_hints(ServerOptions)
_LM_SERVER: Mapping[str, Any] = {**_SERVER, "form": Literal["auto", "completion", "chat"]}
_LAVIS = get_type_hints(LavisOptions)
_TRANSFORMERS, _OPENAI = "causal_lm:TransformersLM.from_pretrained", "openai_lm:OpenAILM"

LOADERS: Mapping[str, Mapping[str, BackEnd]] = {
    "matcher": {
        "blip": BackEnd("blip:BlipMatcher.from_pretrained", {**get_type_hints(MatcherOptions), **_PLACE}),
        "lavis": BackEnd(
            "lavis.parts:LavisMatcher.from_pretrained", {**_LAVIS, "block": int, "average": Average}, runs="lavis"
        ),
        "contrastive": BackEnd("contrastive:ContrastiveMatcher.from_pretrained", _PLACE, grounds=False),
    },
    "captioner": {
        "blip": BackEnd("blip:BlipCaptioner.from_pretrained", {**get_type_hints(CaptionerOptions), **_PLACE}),
        "lavis": BackEnd(
            "lavis.parts:LavisCaptioner.from_pretrained",
            {**_LAVIS, **dict.fromkeys(("min_length", "max_length", "top_k"), int)},
            runs="lavis",
        ),
    },
    "language_model": {
        "transformers": BackEnd(_TRANSFORMERS, _LANGUAGE_MODEL),
        "transformers-int8": BackEnd(_TRANSFORMERS, _LANGUAGE_MODEL, {"dtype": "int8"}),
        "openai": BackEnd(_OPENAI, _LM_SERVER, runs="server"),
        "openai-chat": BackEnd(_OPENAI, _LM_SERVER, {"form": "chat"}, runs="server"),
        "openai-completion": BackEnd(_OPENAI, _LM_SERVER, {"form": "completion"}, runs="server"),
    },
    "retriever": {
        "sentence": BackEnd("retrieval:SentenceRetriever.from_pretrained", {}, owner="sentence-transformers")
    },
    "detector": {
        "zero-shot": BackEnd(
            "detector:ZeroShotDetector.from_pretrained", {**_PLACE, "threshold": float, "max_batch": int | None}
        )
    },
    "eyes": {
        "transformers": BackEnd("vlm:TransformersEyes.from_pretrained", {**_PLACE, "cache_bytes": int}),
        "openai": BackEnd(
            "openai_eyes:OpenAIEyes",
            {**_SERVER, "side": int, "detail": Literal["low", "high", "auto"] | None, "structured": bool},
            runs="server",
        ),
    },
}
"""Back end by role and name."""


def parse_spec(role: str, spec: str) -> tuple[BackEnd, str]:
    """Returns the back end and the id of ``back end:id``, or those of a plugin's ``package/name``, loading no model.

    Raises:
        UnknownNameError: no such role or back end.
    """
    if role not in LOADERS:
        raise UnknownNameError.of("part", role, LOADERS)
    back_end, _, name = spec.partition(":")
    if (own := _own(role, spec)) is not None:
        return own, ""
    if not name or back_end not in LOADERS[role]:
        shown = ", ".join([*(f"{key}:ID" for key in LOADERS[role]), *plugins.names(role)])
        hint = nearest(back_end, [*LOADERS[role], *plugins.names(role)]) or f"Write one of: {shown}."
        raise UnknownNameError(f"{spec!r} cannot be the {role.replace('_', ' ')}.", hint=hint)
    return LOADERS[role][back_end], name


def _own(role: str, spec: str) -> BackEnd | None:
    """Returns the back end of a plugin's model, None where there is none of that name."""
    factory = plugins.find(role, spec) if "/" in spec and ":" not in spec else None
    if factory is None:
        return None
    parameters = inspect.signature(factory, eval_str=True).parameters.values()
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes = {
        parameter.name: Any if parameter.annotation is parameter.empty else parameter.annotation
        for parameter in parameters
        if parameter.kind in kinds
    }
    return BackEnd("", takes, runs="own", grounds=getattr(factory, "grounds", True), factory=factory)


def options_of(role: str, spec: str) -> Mapping[str, Any]:
    """Returns the options that a part takes, with their annotations.

    Raises:
        UnknownNameError: no such role or back end.
    """
    back_end, _ = parse_spec(role, spec)
    return {name: hint for name, hint in back_end.takes.items() if name not in back_end.fixed}


def back_end_of(spec: str) -> BackEnd:
    """Returns what a part's ``back end:id`` names, whatever its role.

    Raises:
        UnknownNameError: there is no back end of that name.
    """
    name = spec.partition(":")[0]
    for role, back_ends in LOADERS.items():
        if back_end := back_ends.get(name) or _own(role, spec):
            return back_end
    raise UnknownNameError(f"No back end {name!r}.")
