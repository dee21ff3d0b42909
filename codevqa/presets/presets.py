"""The presets: exact model ids and settings by name.

A part is written ``back end:id``. An id that begins with ``@`` is a folder inside the installed package; any other is a
folder, a name on the Hugging Face hub, a model of a server, or for BLIP the address of a file of LAVIS. Revisions of
the hub are named for BLIP, whose weights decide what is seen: ``owner/name@revision``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..core.errors import UnknownNameError
from ..core.settings import QuerySettings, SetSettings, Settings, WriterSettings
from ..core.trace import Form
from .published import published_settings


@dataclass(frozen=True)
class Preset:
    """A complete choice of models and settings."""

    name: str
    about: str
    """One line for ``codevqa models``."""
    measured: str
    """What was measured with it, and what was not, in one line."""
    language_model: str | None
    """Writes the programs and reads the captions; None leaves it to be chosen."""
    retriever: str
    prompts: Mapping[Form, str]
    """Prompt set by form of question."""
    matcher: str | None = None
    captioner: str | None = None
    detector: str | None = None
    eyes: str | None = None
    """A vision-language model that answers in the place of captions."""
    to_choose: str = ""
    """What to do where the preset names no language model."""
    settings: Settings = Settings()
    for_its_language_model: tuple[str, ...] = ()
    """Settings that were made for its own language model. Another model keeps the usual values."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Arguments for loading a part, by role."""
    without_gpu: Mapping[str, object] = field(default_factory=dict)
    """What is set where there is no GPU: a language model in fewer bits, and fewer examples. A processor takes a
    second or two to read one."""
    if_cached: Mapping[str, str] = field(default_factory=dict)
    """Parts that are used in place of its own where their checkpoint lies in the hub's cache already."""
    domain: str | None = None
    """Folder that says what its matcher and captioner know. It counts as long as one of the two is in use."""

    @property
    def parts(self) -> dict[str, str]:
        """What is loaded, by role; without what is left to be chosen."""
        roles = ("matcher", "captioner", "language_model", "retriever", "detector", "eyes")
        return {role: spec for role in roles if (spec := getattr(self, role)) is not None}


_READING = QuerySettings(captions=7, selection="kind")
"""What reads best with language models from the hub (docs/reports/language-models.md). The two witnesses
(``query.witness``, ``query.stated``) stay off: their gain was measured on drawn pictures alone."""
_WRITING = WriterSettings(retrieval="both", shots=12)
"""What writes the best programs for real sentences about two pictures (docs/reports/language-models.md)."""
_FLOAT32: Mapping[str, Any] = MappingProxyType({"dtype": "float32"})
_LAVIS = "https://storage.googleapis.com/sfr-vision-language-research/BLIP/models"
"""Where LAVIS keeps its checkpoints. No checksums are published."""
_PAPER_PROMPTS: Mapping[Form, str] = MappingProxyType({"image": "gqa", "set": "covr"})

_MINI = Preset(
    name="mini",
    about="tiny models inside the package: offline, two CPU cores, drawn pictures only",
    measured="answers on drawn pictures (docs/reports/measured.md)",
    matcher="blip:@mini/weights/matcher",
    captioner="blip:@mini/weights/captioner",
    language_model="transformers:@mini/weights/lm",
    retriever="sentence:@mini/weights/retriever",
    prompts=MappingProxyType({"image": "mini", "set": "mini"}),
    settings=Settings(
        writer=WriterSettings(repairs=0),
        sets=SetSettings(witness=True, rule_out=0.1),
        workers=64,
        strict_domain=True,
    ),
    for_its_language_model=("writer.repairs",),
    domain="@mini/weights/domain",
    options={"matcher": {"block": 2, "average": "all"}, "captioner": {"min_length": 0, "temperature": 0.5}},
)
_BASE = Preset(
    name="base",
    about="BLIP base and a small instruction-tuned coder from the hub: a laptop with network",
    measured="programs for real questions, answers on drawn pictures; no photographs",
    matcher="blip:Salesforce/blip-itm-base-coco@7eaa90c11850c0b17fc38c6a11e7d88bd6ac231f",
    captioner="blip:Salesforce/blip-image-captioning-base@82a37760796d32b1411fe092ab5d4e227313294b",
    language_model="transformers:Qwen/Qwen2.5-Coder-1.5B-Instruct",
    retriever="sentence:sentence-transformers/all-mpnet-base-v2",
    prompts=_PAPER_PROMPTS,
    settings=Settings(writer=_WRITING, query=_READING),
    without_gpu={"language_model": "transformers-int8:Qwen/Qwen2.5-Coder-1.5B-Instruct", "writer.shots": 8},
)

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            _MINI,
            replace(
                _MINI,
                name="mini-vlm",
                about="mini with a tiny vision-language model that answers: drawn pictures only",
                measured="answers on drawn pictures (docs/reports/eyes.md)",
                eyes="transformers:@mini/weights/vlm",
            ),
            replace(
                _BASE,
                name="vlm",
                about="SmolVLM 0.5B and a small coder from the hub: photographs, a laptop with network",
                measured="its writer on real questions; its eyes not at all: none could be had",
                matcher="contrastive:google/siglip2-base-patch16-224",
                captioner=None,
                detector="zero-shot:IDEA-Research/grounding-dino-tiny",
                eyes="transformers:HuggingFaceTB/SmolVLM-500M-Instruct",
                settings=Settings(writer=_WRITING),
            ),
            Preset(
                name="api",
                about="one vision-language model of a server writes, reads and looks: photographs; needs --model",
                measured="not at all: no served model could be had",
                language_model=None,
                retriever=_MINI.retriever,
                if_cached={"retriever": _BASE.retriever},
                prompts=_PAPER_PROMPTS,
                settings=Settings(writer=_WRITING, workers=64),
                to_choose="Name one that your server has: --model NAME.",
            ),
            _BASE,
            Preset(
                name="large",
                about="BLIP large and a 7B coder from the hub: photographs, a GPU",
                measured="speed alone (docs/reports/speed.md)",
                matcher="blip:Salesforce/blip-itm-large-coco@fef05cafc05298067cbbca00b125749394a77a6f",
                captioner="blip:Salesforce/blip-image-captioning-large@353689b859fcf0523410b1806dace5fb46ecdf41",
                language_model="transformers:Qwen/Qwen2.5-Coder-7B-Instruct",
                retriever="sentence:sentence-transformers/all-mpnet-base-v2",
                prompts=_PAPER_PROMPTS,
                settings=Settings(writer=_WRITING, query=_READING, workers=128),  # a GPU likes full batches
            ),
            Preset(
                name="paper",
                about="the paper's setting: LAVIS's own BLIP large, float32, a GPU; needs --language-model",
                measured="prompts equal to the release's; BLIP equal to LAVIS; no answers",
                matcher=f"blip:{_LAVIS}/model_large_retrieval_coco_train2014.pth",
                captioner=f"blip:{_LAVIS}/model_large_caption_coco_train2014.pth",
                language_model=None,
                retriever="sentence:sentence-transformers/all-mpnet-base-v2",
                prompts=_PAPER_PROMPTS,
                to_choose="The paper's is unavailable: give --lm openai-completion:NAME or --lm transformers:ID.",
                settings=published_settings(),
                options={"matcher": _FLOAT32, "captioner": _FLOAT32},
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
        raise UnknownNameError.of("preset", name, PRESETS) from None
