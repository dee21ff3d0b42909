"""The functions programs may call, defined once by typed Python functions."""

from __future__ import annotations

from .kinds import Image
from .signature import CONSTANTS, GRID, Primitive, PrimitiveSet, primitive

__all__ = ["CONSTANTS", "GRID", "Image", "Primitive", "PrimitiveSet", "primitive"]
