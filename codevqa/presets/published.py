"""How the paper's figures came about, as values under dotted names: those of its released code.

Numbers of the prompt sets (examples, captions, draws) are the paper's already; what is not named here is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..core.settings import QuerySettings, Settings, WriterSettings

RELEASE: Mapping[str, object] = MappingProxyType(
    {
        "matcher.dtype": "float32",
        "captioner.dtype": "float32",
        "writer.form": "completion",
        "writer.wording": "release",
        "writer.tell_kind": False,
        "writer.selection": "nearest",
        "writer.retrieval": "words",
        "writer.shots": None,
        "writer.programs": 1,
        "writer.refuse": False,
        "writer.max_tokens": 512,
        "writer.repairs": 0,
        "writer.fit": False,
        "query.form": "completion",
        "query.wording": "release",
        "query.max_tokens": 20,
        "query.captions": None,
        "query.max_draws": None,
        "query.patches": 20,
        "query.attempts": 4,
        "query.selection": "question",
        "query.shots": None,
        "query.fit": False,
        "query.witness": False,
        "query.stated": False,
        "position_text": "question",
        "position_at": "corner",
        "answers": "release",
        "agree": 1,
        "abstain_below": 0.0,
    }
)
"""The paper's released code."""
BANK = 50
"""Annotated programs that the paper chooses examples among."""


def published_settings() -> Settings:
    """Returns the settings of the preset ``paper``."""
    tables: dict[str, dict[str, object]] = {"": {}, "writer": {"bank": BANK}, "query": {}}
    for name, value in RELEASE.items():
        table, _, field = name.rpartition(".")
        if table in tables:  # the others are options of models
            tables[table][field] = value
    own, writer, query = tables[""], tables["writer"], tables["query"]
    return Settings(writer=WriterSettings(**writer), query=QuerySettings(**query), **own)  # type: ignore[arg-type]
