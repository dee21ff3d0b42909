"""The primitives of questions that a picture alone does not answer: what is there, and what is known about it.

They join the vocabulary where a prompt set names them, as OK-VQA's does.
"""

from __future__ import annotations

from .context import CallContext
from .kinds import Image
from .signature import PrimitiveSet, primitive
from .visual import query

__all__ = ["KNOWLEDGE", "knowledge_query", "visual_query"]


@primitive(ahead=True)
async def visual_query(context: CallContext, img: Image, question: str) -> str:
    """Answers the question about the image in a word or two, from what can be seen.

    The same as ``query``, by the name that tells it from ``knowledge_query``.
    """
    answer: str = await query.function(context, img, question)
    return answer


@primitive(ahead=True)
async def knowledge_query(context: CallContext, question: str) -> str:
    """Answers the question in a word or two from general knowledge, without looking at an image.

    The language model that reads captions answers after the knowledge examples of the programs it was shown. It sees
    no picture, so the question has to name what it is about. Lower case.
    """
    if not question.strip():
        raise ValueError("knowledge_query() needs a question, not an empty string")
    reading = await context.pnpvqa.recall(question, context.knowledge)
    context.evidence.extend(reading.evidence)
    return reading.text


KNOWLEDGE = PrimitiveSet([visual_query, knowledge_query])
"""Offered where a prompt set names them."""
