"""Chat templates: whether a model that is not loaded has one, and chats for those without turns of the system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.errors import ModelNotFoundError
from .library_errors import first_line


def of_tokenizer(name: str, revision: str | None = None) -> bool:
    """Says whether the tokenizer of a folder, or of a model of the hub, has one. Fetches the tokenizer alone.

    Raises:
        ModelNotFoundError: it is not here and cannot be fetched.
    """
    from transformers import AutoTokenizer

    try:
        return bool(AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=False).chat_template)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError) as error:
        raise ModelNotFoundError(
            f"Cannot load the tokenizer of {name}: {first_line(error)}.", hint="Give --form chat or --form completion."
        ) from None


def without_system(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Returns the turns of a chat with what the system says at the head of the user's first."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    (first, *rest) = [dict(message) for message in messages if message["role"] != "system"] or [
        {"role": "user", "content": ""}
    ]
    return [{**first, "content": "\n\n".join(filter(None, [*system, first["content"]]))}, *rest]
