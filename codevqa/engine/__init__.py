"""What a user calls, and the course of one question through everything else."""

from .codevqa import CodeVQA
from .many import Question

__all__ = ["CodeVQA", "Question"]
