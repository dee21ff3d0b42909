"""Few-shot PnP-VQA over fakes, asked one question."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image

from codevqa.batching.model_services import ModelServices
from codevqa.core.images import load_picture
from codevqa.core.settings import QuerySettings
from codevqa.core.trace import Form, ImageRef
from codevqa.models.fakes import FakeCaptioner, FakeMatcher, ScriptedLM
from codevqa.models.protocols import Models
from codevqa.models.retrieval import Retriever
from codevqa.primitives.parts import Reading
from codevqa.primitives.pnpvqa import PnPVQA
from codevqa.prompts import PromptSet


class Letters:
    """Embeds by letters, so that nearness can be worked out by hand."""

    name = "letters"

    def embed(self, sentences: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array(
            [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in sentences], "f4"
        )


def read(
    question: str,
    reader: ScriptedLM,
    banks: Mapping[Form, PromptSet],
    settings: QuerySettings,
    *,
    form: Form = "image",
    task: Form = "image",
    captioner: FakeCaptioner | None = None,
    matcher: FakeMatcher | None = None,
    retriever: Retriever | None = None,
    chat: bool = False,
    about: str | None = None,
    witness: bool = False,
) -> Reading:
    captioner = captioner or FakeCaptioner(lambda request: f"thing {request.seed}", grid=6)
    picture = (ImageRef(1), load_picture(Image.new("RGB", (8, 8), "red")))

    async def main() -> Reading:
        models = Models(reader, matcher or FakeMatcher(6), captioner)
        services = ModelServices(models, reader, max_batch=64, max_wait=0.0, retriever=retriever)
        reader.chat_only = chat  # type: ignore[attr-defined]
        method = PnPVQA(services, banks, settings, retriever, 0)
        try:
            return await method.answer([picture], question, form, task, about=about, witness=witness)
        finally:
            services.close()

    return asyncio.run(main())
