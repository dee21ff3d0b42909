"""Causal language models, run in this process: :class:`TransformersLM` is the way in.

How a batch is decoded is chosen by :mod:`.transformers_lm`: in packed passes on a CPU (:mod:`.cpu`), in slots on a GPU
(:mod:`.gpu`), by ``model.generate`` where neither fits the model (:mod:`.generate`). The first two know nothing of one
another; what they share lies beside them. Importing this module imports PyTorch.
"""

from .transformers_lm import TransformersLM
from .work import LMStats

__all__ = ["LMStats", "TransformersLM"]
