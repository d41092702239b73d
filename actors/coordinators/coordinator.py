"""A coordinator in its host, from claiming its partition to its end. A `CoordinatorCore` decides.

    waiting ──the one before has ended──► claiming, replaying ──► serving ──replaced, its log ended──► over

It refuses all requests until it serves. What must stay true:
- It reports that it serves only after its core has replayed everything up to the claim (rule 25).
- Once the controller has placed another one, or its log has ended, it answers nobody any more and ends.
- When it is over nothing of it runs any more, and each request that it held is answered: of unknown outcome (rule 27).
- What it answers is not older than the last coordinator's: where its lease may be over, as after it was stopped, or
  while there is no controller, it makes sure of its log before each answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, Protocol, TypeAlias

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, pass_on
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.errors import CoordinatorNotReady, CoordinatorStopped, RaylogError, StreamNotOpen

_CANCEL_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class CoordinatorCore(Protocol):
    """One kind of coordinator."""

    async def start(self) -> None:
        """Claim and replay the log. From then on requests are taken."""

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Raises MessageUnknown for what this kind is not asked."""

    async def close(self) -> None: ...

    def readings(self) -> Iterable[Reading]:
        """The metrics of a coordinator."""


MakeCore: TypeAlias = Callable[[Environment, CoordinatorSpec, CoordinatorLog, ClusterLink], CoordinatorCore]


class HostedCoordinator:
    """`run` returns why it ended; then `over` is done. `on_serving` is called when it begins to serve."""

    def __init__(
        self,
        env: Environment,
        spec: CoordinatorSpec,
        link: ClusterLink,
        make: MakeCore,
        on_serving: Callable[[], None],
    ) -> None:
        self.spec = spec
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._replaced: asyncio.Future[str] = self._loop.create_future()  # by another one, or by none
        self._on_serving = on_serving
        self._is_serving = False
        self._is_over = False
        self._sure_until = 0.0
        self._held: set[asyncio.Future[Answer]] = set()
        self._owed: set[LaterAnswer] = set()
        self._partition_log = CoordinatorLog(
            link, spec.topic, spec.partition, spec.producer_id, spec.epoch, spec.retired_id
        )
        self._core = make(env, spec, self._partition_log, link)

    @property
    def is_serving(self) -> bool:
        return self._is_serving

    def readings(self) -> Iterable[Reading]:
        """Return the core's metrics, while it serves."""
        return self._core.readings() if self._is_serving else ()

    def is_sure_until(self, time: float) -> None:
        """Answer from memory until then: before that no controller places another one."""
        self._sure_until = max(self._sure_until, time)  # what was granted before still holds

    def stop(self, reason: str) -> None:
        """End soon."""
        if not self._replaced.done():
            self._replaced.set_result(reason)

    async def run(self, before: HostedCoordinator | None) -> str:
        """Live as this coordinator, once the one `before` it in the same process has ended.

        An error that is none of raylog's is a mistake, and is raised.
        """
        serving = self._loop.create_task(self._serve(before))
        over: list[asyncio.Future[Any]] = [self._replaced, self._partition_log.ended, serving]
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            return self._why(serving)
        finally:
            self._is_serving = False
            serving.cancel()
            await self._core.close()
            await self._partition_log.close()
            await self._let_go()
            if before is not None:
                await asyncio.wait([before.over])
            self.over.set_result(None)

    async def _serve(self, before: HostedCoordinator | None) -> None:
        if before is not None:
            await asyncio.wait([before.over])
        await self._core.start()
        _log.info("The %s serves.", self.spec)
        self._is_serving = True
        self._on_serving()
        await asyncio.wait([self._replaced])

    def _why(self, serving: asyncio.Task[None]) -> str:
        error = serving.exception() if serving.done() and not serving.cancelled() else None
        if error is not None and not isinstance(error, RaylogError):
            raise error
        if self._replaced.done():
            return self._replaced.result()
        if self._partition_log.ended.done():
            return str(self._partition_log.ended.result())
        return str(error)

    async def _let_go(self) -> None:
        """End the requests that wait for something that will not come any more."""
        self._is_over = True
        await asyncio.sleep(0)  # so that each of them has begun, and hears of its end
        while self._owed:
            self._owed.pop().fail(self._stopped())
        held = list(self._held)
        for each in held:
            each.cancel()
        if held:
            await asyncio.wait(held, timeout=_CANCEL_SECONDS)

    # --- being asked ----------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        if not self._is_serving or self._partition_log.ended.done():
            raise CoordinatorNotReady(self.spec.topic, self.spec.partition)
        if self._loop.time() >= self._sure_until:
            later = LaterAnswer()
            self._hold(self._handle_when_sure(request, later))
            return self._owe(later)
        answer = self._core.handle(request)
        if isinstance(answer, LaterAnswer):
            return self._owe(answer)
        return self._hold(answer) if isinstance(answer, Awaitable) else answer

    async def _handle_when_sure(self, request: Request, later: LaterAnswer) -> Answer:
        """Requests that waited in sockets while this process stood still come in any order. Whose stream has ended
        meanwhile is dead, or will ask again: its request, a join say, must not undo what its successor has asked for.
        """
        try:
            await self._partition_log.confirm()
            if request.stream.closed.done():
                raise StreamNotOpen(request.stream.peer, "it ended before its request was handled")
            answer = self._core.handle(request)
            if isinstance(answer, LaterAnswer):  # it takes no task, however long it waits
                later.when_cancelled(answer.cancel)
                pass_on(answer, later)
            else:
                pass_on(await answer if isinstance(answer, Awaitable) else answer, later)
        except Exception as error:  # noqa: BLE001 (whatever it is, it goes back to the requester)
            later.fail(error)
        return None

    def _hold(self, answer: Awaitable[Answer]) -> Awaitable[Answer]:
        held = self._loop.create_task(self._answered(answer))
        self._held.add(held)
        held.add_done_callback(self._held.discard)
        return held

    async def _answered(self, answer: Awaitable[Answer]) -> Answer:
        try:
            return await answer
        except asyncio.CancelledError:
            if self._is_over:
                raise self._stopped() from None
            raise

    def _owe(self, later: LaterAnswer) -> LaterAnswer:
        """Return an answer that is given with this one, or when this coordinator is over."""
        owed = LaterAnswer()
        self._owed.add(owed)

        def over(answer: Answer, error: BaseException | None) -> None:
            self._owed.discard(owed)
            if owed.done():
                return
            if error is None:
                owed.give(answer)
            else:
                owed.fail(error)

        def cancelled() -> None:
            self._owed.discard(owed)
            later.cancel()

        owed.when_cancelled(cancelled)
        later.when_over(over)
        return owed

    def _stopped(self) -> CoordinatorStopped:
        return CoordinatorStopped(self.spec.topic, self.spec.partition, self.spec.epoch)
