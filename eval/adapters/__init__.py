"""CodeVQA as a model of other harnesses, which find it through entry points where both are installed.

``inspect eval TASK --model codevqa/mini`` (:mod:`.inspect_model`) and ``lmms_eval --model codevqa --model_args
preset=mini`` (:mod:`.lmms_model`). Only those two modules import the harness, and only the harness imports them.
"""

from __future__ import annotations

from typing import Any

from ...engine.codevqa import CodeVQA

__all__ = ["lmms_manifest", "open_engine", "question_of"]


def open_engine(preset: str, sets: dict[str, Any]) -> CodeVQA:
    """Opens an engine that puts every question to the models, as ``codevqa eval`` does.

    Args:
        preset: its name, or a file of one's own.
        sets: parts and single values, as for ``codevqa --set``: ``{"prompts": "nlvr2", "query.captions": 3}``.

    Raises:
        CodeVQAError: there is no such preset, field or model.
    """
    return CodeVQA.from_preset(preset, sets={"strict_domain": False, **sets})


def question_of(prompt: str) -> str:
    """Returns the first line of a prompt: below it harnesses tell chat models how to put their answer."""
    return prompt.strip().partition("\n")[0].strip()


def lmms_manifest() -> Any:
    """Returns what lmms-eval registers; it calls this through the entry point ``lmms_eval.models``."""
    from lmms_eval.models.registry_v2 import ModelManifest

    return ModelManifest("codevqa", simple_class_path="codevqa.eval.adapters.lmms_model.LmmsModel")
