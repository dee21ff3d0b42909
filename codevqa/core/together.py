"""Several coroutines at once, of which the first failure ends the others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Returns what each gives, in their order. Unlike ``asyncio.gather`` it leaves nothing running behind a failure.

    Raises:
        Exception: what the first to fail raised; the others are cancelled, and have ended.
    """
    coroutines = list(work)
    if len(coroutines) == 1:  # a task of its own would pay for nothing
        return [await coroutines[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failed:
        failure = failed.exceptions[0]
    else:
        return [task.result() for task in tasks]
    raise failure
