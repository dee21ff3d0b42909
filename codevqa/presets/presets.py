"""The presets: exact model ids and settings by name.

A part is written ``back end:id``. An id that begins with ``@`` is a folder inside the installed package; any other is a
folder, a name on the Hugging Face hub, or a model of a server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ..core.errors import UnknownNameError
from ..core.settings import Limits, QuerySettings, Settings, WriterSettings
from ..core.trace import Form

__all__ = ["PRESETS", "Preset", "preset"]


@dataclass(frozen=True)
class Preset:
    """A complete choice of models and settings."""

    name: str
    about: str
    """One line for ``codevqa models``."""
    matcher: str
    captioner: str
    language_model: str
    """Writes the programs and reads the captions."""
    retriever: str | None
    prompts: Mapping[Form, str]
    """Prompt set by form of question."""
    settings: Settings = Settings()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments for loading a part, by role."""
    quantised: str | None = None
    """The language model in fewer bits, taken in its place where there is no GPU."""
    quantised_shots: int | None = None
    """In-context examples at most with that."""

    @property
    def parts(self) -> dict[str, str]:
        """What is loaded, by role."""
        parts = {"matcher": self.matcher, "captioner": self.captioner, "language_model": self.language_model}
        return parts | ({"retriever": self.retriever} if self.retriever else {})


_READING = QuerySettings(captions=7, selection="kind", stated=True, witness=True)
"""What reads best with the language models that people have; measured in docs/language-models.md."""
_PAPER_PROMPTS: Mapping[Form, str] = MappingProxyType({"image": "gqa", "set": "covr"})

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        one.name: one
        for one in (
            Preset(
                name="mini",
                about="tiny models inside the package: offline, two CPU cores, drawn pictures only",
                matcher="blip:@mini/weights/matcher",
                captioner="blip:@mini/weights/captioner",
                language_model="transformers:@mini/weights/lm",
                retriever="sentence:@mini/weights/retriever",
                prompts=MappingProxyType({"image": "mini", "set": "mini"}),
                settings=Settings(writer=WriterSettings(max_tokens=256, repairs=0), workers=64),
                options={"matcher": {"block": 2, "average": "all"}, "captioner": {"min_length": 0, "temperature": 0.5}},
            ),
            Preset(
                name="base",
                about="BLIP base and a small instruction-tuned coder from the hub: a laptop with network",
                matcher="blip:Salesforce/blip-itm-base-coco",
                captioner="blip:Salesforce/blip-image-captioning-base",
                language_model="transformers:Qwen/Qwen2.5-Coder-1.5B-Instruct",
                retriever="sentence:sentence-transformers/all-mpnet-base-v2",
                prompts=_PAPER_PROMPTS,
                settings=Settings(query=_READING, limits=Limits(wall_seconds=600)),  # first prompts take minutes
                quantised="transformers-int8:Qwen/Qwen2.5-Coder-1.5B-Instruct",
                quantised_shots=8,
            ),
            Preset(
                name="large",
                about="BLIP large and a 7B coder from the hub: the paper's setting, a GPU",
                matcher="blip:Salesforce/blip-itm-large-coco",
                captioner="blip:Salesforce/blip-image-captioning-large",
                language_model="transformers:Qwen/Qwen2.5-Coder-7B-Instruct",
                retriever="sentence:sentence-transformers/all-mpnet-base-v2",
                prompts=_PAPER_PROMPTS,
                settings=Settings(query=_READING, workers=128),  # a GPU likes full batches
            ),
        )
    }
)


def preset(name: str) -> Preset:
    """Returns the preset of that name.

    Raises:
        UnknownNameError: there is none.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise UnknownNameError(f"No preset {name!r}.", hint=f"There are: {', '.join(PRESETS)}.") from None
