"""Says whether a language model has a chat template, without loading the model."""

from __future__ import annotations

from ..core.errors import ModelNotFoundError
from .library_errors import first_line

__all__ = ["of_tokenizer"]


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
