"""CodeVQA as a model of inspect_ai: ``inspect eval TASK --model codevqa/mini -M prompts=nlvr2``.

A message's first line is the question, its pictures are those the question is about; what was said before is not heard.
``-M`` takes ``method`` (``codevqa`` or ``pnpvqa``) and whatever ``codevqa --set`` does. The program, its calls and
whether the baseline had to answer are in the output's metadata.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inspect_ai.model import (
    ChatMessage,
    ContentImage,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    modelapi,
)

from ...core.errors import InputError
from ...core.trace import Method
from . import open_engine, question_of

__all__ = ["InspectModel", "codevqa"]


class InspectModel(ModelAPI):  # type: ignore[misc]  # as everything of inspect_ai, where it is not installed
    """An engine that answers the last message."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: Any = None,
        method: Method = "codevqa",
        **sets: Any,
    ) -> None:
        """Opens the engine of a preset.

        Raises:
            CodeVQAError: there is no such preset, field or model.
        """
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        self.method = method
        self.engine = open_engine(model_name, sets)

    async def generate(self, input: list[ChatMessage], tools: Sequence[Any], tool_choice: Any, config: Any) -> Any:
        """Answers the last message; tools and how to generate are for other models.

        Raises:
            CodeVQAError: there is no picture or no question, or a model failed.
        """
        message = input[-1]
        content = [] if isinstance(message.content, str) else message.content
        pictures = [_picture(one.image) for one in content if isinstance(one, ContentImage)]
        answer = await self.engine.ask_async(pictures, question_of(message.text), method=self.method)
        output = ModelOutput.from_content(model=self.model_name, content=answer.text)
        if answer.cost is not None:
            read, written = answer.cost.prompt_tokens, answer.cost.completion_tokens
            output.usage = ModelUsage(input_tokens=read, output_tokens=written, total_tokens=read + written)
        output.metadata = answer.to_dict(evidence=False)
        return output

    def max_connections(self) -> int:
        """Returns how many questions are answered at once."""
        return self.engine.settings.workers

    def close(self) -> None:
        """Closes the engine."""
        self.engine.close()


def _picture(image: str) -> bytes | Path:
    """Returns a picture as the engine takes it.

    Raises:
        InputError: it lies on the web.
    """
    if image.startswith("data:"):
        return b64decode(image.partition(",")[2])
    if "://" in image:
        raise InputError(f"{image} lies on the web.", hint="Fetch it first and give the file.")
    return Path(image)


@modelapi(name="codevqa")  # type: ignore[untyped-decorator]
def codevqa() -> type[InspectModel]:
    """Returns the provider of ``codevqa/PRESET``."""
    return InspectModel
