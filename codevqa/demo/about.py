"""The head of the page: what this is, which models answer, and what they know."""

from __future__ import annotations

from html import escape
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from ..presets.assembly import domain_of
from ..presets.presets import preset
from .engines import Engines

__all__ = ["head_html", "models_html"]

PAPER = "https://aclanthology.org/2023.acl-short.65/"
ROLES = {
    "matcher": "looks where a phrase is",
    "captioner": "describes what is there",
    "language_model": "writes programs and reads descriptions",
    "retriever": "finds worked examples",
    "detector": "finds objects by name",
}


def head_html() -> str:
    """Returns the title, what happens here, and where to read on."""
    links = " · ".join(
        f'<a href="{escape(address)}" target="_blank" rel="noopener noreferrer">{escape(name)}</a>'
        for name, address in _links().items()
    )
    return (
        '<header class="demo-head"><h1>CodeVQA</h1><p>Ask about pictures. A language model writes a small program for'
        " your question, a sandbox runs it, and every step is shown: where it looked, what it read there, and what it"
        f' concluded.</p><p class="demo-links">{links}</p></header>'
    )


def models_html(engines: Engines, name: str) -> str:
    """Returns which models answer with a preset, and what they know.

    Raises:
        UnknownNameError: no such preset.
    """
    configuration = engines.configuration(name)
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


def _links() -> dict[str, str]:
    """Returns the paper, and what the package says of where it lives."""
    try:
        named = metadata("codevqa").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a folder
        named = []
    pairs = (one.partition(",")[::2] for one in named)
    return {"Paper": PAPER} | {
        name.strip(): address.strip() for name, address in pairs if address.strip().startswith("https://")
    }


def _model(spec: str) -> str:
    """Returns a model without the folders of this machine, and without its revision."""
    id = spec.partition(":")[2] or spec
    if id.startswith("@"):
        return id.removeprefix("@")
    return id.rpartition("/")[2] if Path(id).is_absolute() or "://" in id else id.partition("@")[0]
