"""Triton, which comes with PyTorch for NVIDIA GPUs, and what kernels look like where it is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

HERE = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed."""

_F = TypeVar("_F")

if TYPE_CHECKING or not HERE:
    tl: Any = None

    def compile_kernel(*plain: str) -> Callable[[_F], Any]:
        """Leaves a kernel as it is."""
        return lambda function: function

else:
    import triton
    import triton.language as tl  # noqa: F401 - kernels take it from here

    def compile_kernel(*plain: str) -> Any:
        """Compiles a kernel; the integers named are never made part of the code."""
        return triton.jit(do_not_specialize=list(plain))


def power(number: int) -> int:
    """Returns the next power of two."""
    return 1 << max(0, number - 1).bit_length()
