"""What a user calls, and the course of one question through all other rooms.

In: pictures and a question, or a program. Out: an answer with its program, its trace and what it took.
"""

from .codevqa import CodeVQA
from .many import Question

__all__ = ["CodeVQA", "Question"]
