"""The functions that programs may call, defined once by typed Python functions; and few-shot PnP-VQA.

In: a call with plain values and images. Out: its value, and evidence of what the models saw.
"""

from __future__ import annotations

from .kinds import Image
from .signature import CONSTANTS, GRID, Primitive, PrimitiveSet, primitive

__all__ = ["CONSTANTS", "GRID", "Image", "Primitive", "PrimitiveSet", "primitive"]
