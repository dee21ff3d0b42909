"""Causal language models of transformers, run in this process: :class:`TransformersLM` is the way in.

How a batch is decoded is chosen by :mod:`.transformers_lm`: in packed passes on a CPU (:mod:`.cpu`), in slots on a GPU
(:mod:`.gpu`), by ``model.generate`` where neither fits the model (:mod:`.generate`). The first two know nothing of one
another; what they share lies beside them. Importing this module imports PyTorch.
"""

from .stats import LMStats
from .transformers_lm import TransformersLM

__all__ = ["LMStats", "TransformersLM"]
