"""Engines in Ray actors that answer examples, replaced where they die.

Each actor holds one engine and, where there are GPUs, one GPU or a share of it. An actor that dies is replaced, and
what it was asked goes to another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ... import __version__
from ...core.errors import CodeVQAError, InputError, ModelError, SetupError
from ...core.images import load_pictures
from ...core.loop_thread import LoopThread
from ..run.local import failed
from ..run.request import KeptEvidence
from ..run.run_info import RunInfo
from ..task import Example, Job, Row
from .cluster import connect, find_room, last_line, one_line
from .worker import SAME_PACKAGES, ActorSetup, Worker, WorkerReply

if TYPE_CHECKING:
    from ...engine.codevqa import CodeVQA

__all__ = ["ActorPool"]

RETRIES = 3
"""How often an example is asked again by itself after an actor died that was asked it."""
DEATHS = 8
"""Actors that may die with no answer between them."""
HANGING = 1800.0
"""Seconds in which an actor that is asked something answers something; one that does not is as good as dead."""
PLACING = 300.0
"""Seconds Ray may take to find room for an actor."""
CLOSING = 5.0
"""Seconds actors may take to end by themselves."""


class _Died(Exception):
    """The actor that was asked is gone."""


class _ActorSlot:
    """Place of one actor, which may change."""

    def __init__(self) -> None:
        self.actor: Any = None
        self.load = 0
        self.heard = 0.0
        """When it last answered something."""
        self.ready = False
        self.starting: asyncio.Task[None] | None = None


class ActorPool:
    """Actors that answer examples: an :class:`~codevqa.eval.run.session.AskExample`. Use it in a ``with`` block.

    Args:
        factory: makes an engine, in each actor; Ray sends it there.
        actors: how many; None takes one for each GPU, or for each four CPUs where there is none.
        address: ``HOST:PORT`` of a running cluster, or ``auto`` for the one of this machine; None starts Ray here,
            and ends it again.
        one_machine: keep to the machine this program runs on, as recording calls must.

    Raises:
        SetupError: Ray is not installed, not reachable, or has no room; or an engine cannot be made.
        InputError: more actors than GPUs, or an address that is none.
    """

    def __init__(
        self,
        factory: Callable[[], CodeVQA],
        *,
        actors: int | None = None,
        address: str | None = None,
        one_machine: bool = False,
    ) -> None:
        if actors is not None and actors < 1:
            raise InputError(f"{actors} actors cannot work.", hint="Give at least one.")
        self.seeds: tuple[int, ...] = ()
        self.evidence: KeptEvidence = "calls"
        self._ray, self._owned = connect(address)
        self._loop = LoopThread("codevqa-ray")
        self._slots: list[_ActorSlot] = []
        self._suspects = asyncio.Lock()
        self._deaths = 0
        self._error: CodeVQAError | None = None
        try:
            self._options, count, machines = find_room(self._ray, actors, one_machine)
            self._setup = ActorSetup(factory, str(Path.cwd()), __version__, machines)
            self._slots = [_ActorSlot() for _ in range(count)]
            # The others follow when the first has shown that an engine can be made, and that the run may begin.
            self.info: RunInfo = self._loop.run(self._begin(self._slots[0]))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._slots)

    def __enter__(self) -> ActorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fill(self) -> None:
        """Waits until every actor is ready, as a measurement must; else the first to be ready begins.

        Raises:
            SetupError: an engine cannot be made.
        """
        self._loop.run(self._fill())

    def close(self) -> None:
        """Ends the actors, and Ray where it was started here. Safe to call twice."""
        if self._loop.closed:
            return
        ray, actors = self._ray, [slot.actor for slot in self._slots if slot.actor is not None]
        try:
            self._loop.close()
            if actors:
                ray.wait([actor.close.remote() for actor in actors], num_returns=len(actors), timeout=CLOSING)
        finally:
            for actor in actors:
                with suppress(ray.exceptions.RayError):
                    ray.kill(actor)
            if self._owned:
                ray.shutdown()

    async def __call__(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        """Returns one row a job, from whichever actor has the least to do."""
        return await self._loop.wait(self._answer(example, jobs))

    async def _answer(self, example: Example, jobs: Sequence[Job]) -> list[Row]:
        asked = replace(example, gold=(), groups={}, record={})  # an engine needs no more
        message = ""
        for again in range(RETRIES + 1):
            # One at a time: should its actor die once more, no other suspect is lost with it.
            async with self._suspects if again else nullcontext():
                try:
                    found = await self._ask(asked, jobs)
                except _Died as error:
                    message = str(error)
                    continue
            if found.unread:
                await self._check_pictures(example, found.unread)
            return found.rows
        fatal = ModelError(f"{RETRIES + 1} processes died that were asked this.", hint=message)
        return [failed(example, job, fatal) for job in jobs]

    async def _ask(self, example: Example, jobs: Sequence[Job]) -> WorkerReply:
        slot = await self._free(example.cluster or example.id)
        actor = slot.actor
        slot.load += 1
        try:
            result = await self._heard(slot, actor.ask.remote(example, jobs, self.seeds, self.evidence))
        except _Died as error:
            if slot.actor is actor and slot.ready:  # the first to notice
                self._replace(slot, error)
            raise
        finally:
            slot.load -= 1
        self._deaths = 0
        if isinstance(result, CodeVQAError):
            raise result
        assert isinstance(result, WorkerReply)
        return result

    async def _heard(self, slot: _ActorSlot, ref: Any) -> Any:
        """Awaits what an actor answers, as long as it answers anything at all.

        Raises:
            _Died: it is gone, or hangs.
        """
        answer = asyncio.ensure_future(self._result(ref))
        try:
            while not answer.done():
                since = time.monotonic()
                await asyncio.wait((answer,), timeout=HANGING)
                if not answer.done() and slot.heard < since:
                    raise _Died(f"The process answered nothing for {HANGING:g} seconds.")
            slot.heard = time.monotonic()
            return answer.result()
        finally:
            answer.cancel()

    async def _free(self, cluster: str) -> _ActorSlot:
        """Returns the actor that a cluster belongs to, or the one with the least to do; waits where none has started.

        What is asked about the same pictures goes to the same actor, which keeps their features, unless another would
        run dry.
        """
        while True:
            if self._error is not None:
                raise self._error
            starting = self._starting()
            if ready := [slot for slot in self._slots if slot.ready]:
                least = min(ready, key=lambda slot: slot.load)
                home = self._slots[crc32(cluster.encode()) % len(self._slots)]
                near = home.ready and home.load <= least.load + int(self.info.settings["workers"])
                return home if near else least
            await asyncio.wait(starting, return_when="FIRST_COMPLETED")

    def _starting(self) -> list[asyncio.Task[None]]:
        """Starts what is neither ready nor starting, and returns all that start."""
        for slot in self._slots:
            if slot.starting is None and not slot.ready:
                slot.starting = asyncio.ensure_future(self._start(slot))
            elif slot.starting is not None and slot.starting.done():
                slot.starting.result()  # raises what is an error of the code
        return [slot.starting for slot in self._slots if slot.starting]

    async def _fill(self) -> None:
        while not all(slot.ready for slot in self._slots):
            if starting := [task for task in self._starting() if not task.done()]:
                await asyncio.wait(starting)
            if self._error is not None:
                raise self._error

    # -- actors ------------------------------------------------------------------------------------------------------

    def _replace(self, slot: _ActorSlot, error: _Died) -> None:
        self._deaths += 1
        slot.ready, slot.starting = False, None  # who asks next starts another
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(slot.actor)  # it may only be out of reach
        if self._deaths > DEATHS:
            self._error = SetupError(
                f"{self._deaths} of Ray's processes died one after another, and none answered.", hint=str(error)
            )

    async def _start(self, slot: _ActorSlot) -> None:
        """Starts an actor; an engine that cannot be made ends the run, a lack of room only where none is left."""
        try:
            await self._begin(slot)
        except _NoRoom as error:
            self._slots.remove(slot)
            if not self._slots:
                self._error = error
        except CodeVQAError as error:
            self._error = error

    async def _begin(self, slot: _ActorSlot) -> RunInfo:
        message = ""
        for _ in range(RETRIES):
            slot.actor = self._ray.remote(Worker).options(**self._options).remote()
            try:
                await asyncio.wait_for(self._result(slot.actor.place.remote()), PLACING)
                info = await self._result(slot.actor.start.remote(self._setup))
            except TimeoutError:
                self._ray.kill(slot.actor)
                raise _NoRoom(
                    "Ray found no room for an engine.", hint="Is the cluster in use? Give fewer actors."
                ) from None
            except _Died as error:
                message = str(error)
                continue
            if isinstance(info, CodeVQAError):
                raise info
            slot.ready = True
            assert isinstance(info, RunInfo)
            return info
        raise SetupError(f"{RETRIES} of Ray's processes died while they made an engine.", hint=message)

    async def _result(self, ref: Any) -> Any:
        """Awaits what an actor returns. An error that its code raised passes as it is.

        Raises:
            _Died: it is gone.
            SetupError: Ray itself fails.
        """
        future: Future[Any] = ref.future()
        errors = self._ray.exceptions
        try:
            return await asyncio.wrap_future(future)
        except (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError) as error:
            raise _Died(one_line(error)) from None
        except errors.RaySystemError as error:  # what was sent is of a module that is not there
            raise SetupError(f"Ray cannot pass this on: {last_line(error)}.", hint=SAME_PACKAGES) from None
        except errors.RayTaskError:
            raise
        except errors.RayError as error:
            raise SetupError(f"Ray failed: {one_line(error)}.") from None

    async def _check_pictures(self, example: Example, message: str) -> None:
        """A picture that this machine can read and another cannot says nothing about the example.

        Raises:
            SetupError: there is one.
        """
        try:
            await asyncio.to_thread(lambda: load_pictures([image.load() for image in example.images]))
        except InputError:
            return
        raise SetupError(
            f"Another machine cannot read what this one can: {message}",
            hint="Put the data set where every machine finds it under the same path.",
        )


class _NoRoom(SetupError):
    """The cluster has no room for another actor."""
