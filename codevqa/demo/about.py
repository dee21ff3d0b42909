"""The head of the page: what this is, which models answer, and what they know."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..presets.assembly import domain_of
from ..presets.configuration import Configuration
from ..presets.presets import preset

__all__ = ["HEAD", "models_html"]

HEAD = """
<header class="demo-head"><h1>CodeVQA</h1><p>Ask about pictures. A language model writes a small program for your
question, a sandbox runs it, and every step is shown: where it looked, what it read there, and what it concluded.</p>
<p class="demo-links"><a href="https://aclanthology.org/2023.acl-short.65/" target="_blank"
rel="noopener noreferrer">Paper</a></p></header>
"""
ROLES = {
    "matcher": "looks where a phrase is",
    "captioner": "describes what is there",
    "language_model": "writes programs and reads descriptions",
    "retriever": "finds worked examples",
    "detector": "finds objects by name",
}


def models_html(configuration: Configuration) -> str:
    """Returns which models answer, and what they know."""
    name = configuration.preset
    domain = domain_of(configuration)
    knows = f" They know {domain.about.removeprefix('they know ')}" if domain else ""
    rows = "".join(
        f"<dt>{escape(ROLES.get(role, role))}</dt><dd><code>{escape(_model(spec))}</code></dd>"
        for role, spec in configuration.parts.items()
    )
    return (
        f'<details class="demo-models"><summary>Answers come from <b>{escape(name)}</b>'
        f" ({escape(preset(name).about)}).{escape(knows)}</summary><dl>{rows}</dl></details>"
    )


def _model(spec: str) -> str:
    """Returns a model without the folders of this machine, and without its revision."""
    id = spec.partition(":")[2] or spec
    if id.startswith("@"):
        return id.removeprefix("@")
    return id.rpartition("/")[2] if Path(id).is_absolute() or "://" in id else id.partition("@")[0]
