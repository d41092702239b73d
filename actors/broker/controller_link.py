"""A broker's link to the controller: find it, register, send signs of life, pass on what replicas propose.

    looking ──stream──► registering ──BrokerRegistered──► registered
       ▲                     ▲ └── not ready: again           │
       │                     └────── StaleBrokerEpoch ────────┤
       └──── stream ended, no answer, superseded, refused ────┘

What must stay true:
- Orders are taken from the registered controller only, over the stream of its registration, and only as long as this
  broker has not promised a higher epoch to another one (rule 17).
- What is new is reported at once, in one report at a time. One that is not answered ends the stream, and what was in it
  is reported over the next. A heartbeat beside a report is a sign of life and tells nothing twice: a controller that is
  slow to commit the loss of a thousand replicas would decide on each of them again and again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, Protocol

from raylog.actors.broker.local_replicas import LocalReplicas
from raylog.actors.kernel.background import HEARTBEAT_SECONDS, SILENCE_SECONDS, BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment, FindController
from raylog.actors.kernel.stream_interface import Handler, Response, Stream, expected
from raylog.actors.protocol.admin_messages import Administer
from raylog.actors.protocol.control_messages import (
    FULL_BELOW_BYTES,
    BrokerHeartbeat,
    BrokerRegistered,
    RegisterBroker,
)
from raylog.actors.protocol.coordinator_messages import EnsureCoordinators, FindTopicById
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    ControllerFenced,
    ControllerNotReady,
    DuplicateBroker,
    RaylogError,
    RemoteFailed,
    StaleBrokerEpoch,
)

PASSED_ON: Final = (Administer, EnsureCoordinators, FindTopicById)  # the questions of others to the controller
_FIND_SECONDS: Final = 5.0
_REGISTER_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 2 * SILENCE_SECONDS
_REGISTERED_SECONDS: Final = 1.0
_LET_GO_SECONDS: Final = 3.0
_ASK_SECONDS: Final = 5.0
_TRAVEL_SECONDS: Final = 0.5  # for an answer of the controller that has used all the time that it was given
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_LONGEST_PAUSE_UNTIL_READY: Final = 0.2


_log = logging.getLogger(__name__)


class BrokerFacts(Protocol):
    """Facts that the link asks its broker for, each time anew."""

    @property
    def version(self) -> int:
        """The metadata version that goes with a heartbeat."""

    @property
    def usage(self) -> tuple[int, int]:
        """Free bytes and all bytes of its disk, as they go with a heartbeat."""

    @property
    def promised_epoch(self) -> int:
        """The highest epoch of a controller that it has promised to obey."""

    def registration(self) -> RegisterBroker:
        """The request that registers it as it is now."""

    def registered(self) -> None:
        """Take note of a registration."""


class ControllerLink:
    """A broker's one stream to its controller. `handler` takes the orders that come over it."""

    def __init__(
        self,
        env: Environment,
        tasks: BackgroundTasks,
        find: FindController,
        handler: Handler,
        replicas: LocalReplicas,
        facts: BrokerFacts,
    ) -> None:
        self.broker_epoch: int | None = None  # while registered
        self.controller_epoch = -1  # of the controller that it registered with last
        self.refused: asyncio.Future[RaylogError] = asyncio.get_running_loop().create_future()
        self._env = env
        self._tasks = tasks
        self._find = find
        self._handler = handler
        self._replicas = replicas
        self._facts = facts
        self._stream: Stream | None = None
        self._has_news = asyncio.Event()
        self._is_reporting = False
        self._must_register = False
        self._is_over = False
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # --- what others use ------------------------------------------------------------------------------------------

    @property
    def is_registered(self) -> bool:
        return self.broker_epoch is not None

    def wake(self) -> None:
        """Report at once: there is something new."""
        self._has_news.set()

    async def check_order(self, stream: Stream) -> None:
        """Raise unless an order that came over this stream is the present controller's.

        The first orders may be here before this side has dealt with the answer to its registration.
        """
        if stream is self._stream and self.broker_epoch is None:
            await asyncio.wait([self._registered], timeout=_REGISTERED_SECONDS)
        if stream is not self._stream or self.broker_epoch is None:
            raise ControllerNotReady("This broker is not registered over this stream.")
        self._check_controller()

    async def pass_on(self, asked: Message) -> Response:
        """Pass on a question of another process, for as long as that one waits."""
        if isinstance(asked, Administer):
            return await self.ask(asked, asked.timeout_ms / 1000 + _TRAVEL_SECONDS)
        return await self.ask(asked)

    async def ask(self, message: Message, timeout: float = _ASK_SECONDS) -> Response:
        """Ask the controller. An error comes as the controller raised it."""
        stream = self._stream
        if stream is None or self.broker_epoch is None:
            raise ControllerNotReady("This broker has no controller just now.")
        try:
            return await stream.request(message, timeout=timeout)
        except RemoteFailed as error:
            if error.error is None:
                raise
            raise error.error from None

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close(timeout=1.0)

    async def run(self) -> None:
        """Keep up the link, until it is cancelled or refused for good."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._env.random)
        while not self.refused.done():
            try:
                endpoint = await asyncio.wait_for(self._find(), _FIND_SECONDS)
                stream = await self._env.dial(endpoint, "broker", self._handler)
                if await self._use(stream):
                    backoff.reset()
            except (RaylogError, asyncio.TimeoutError) as error:
                level = logging.INFO if backoff.failures <= 1 else logging.DEBUG
                _log.log(level, "No controller yet: %r", error)
            await asyncio.sleep(backoff.next())

    # --- one stream -----------------------------------------------------------------------------------------------

    async def _use(self, stream: Stream) -> bool:
        """Use a stream until it ends. Returns whether this broker was registered over it."""
        self._stream = stream
        was_registered = is_superseded = False
        try:
            while await self._register(stream):
                was_registered = True
                await self._beat(stream)
                if not self._must_register:
                    break
        except RaylogError as error:
            _log.warning("The controller at %s is given up: %s", stream.peer, error)
            is_superseded = isinstance(error, ControllerFenced)
            if not error.retriable and not isinstance(error, (ControllerFenced, DuplicateBroker, RemoteFailed)):
                self.refused.set_result(error)
        self._stream = self.broker_epoch = None
        if is_superseded:
            self._tasks.start(self._let_go(stream))
        else:
            await stream.close(timeout=0.0)
        return was_registered

    async def _let_go(self, stream: Stream) -> None:
        """Let go of a controller that has a successor. It may still ask over this stream, and then hears of that."""
        await asyncio.wait([stream.closed], timeout=_LET_GO_SECONDS)
        await stream.close(timeout=0.0)

    async def _register(self, stream: Stream) -> bool:
        """Register with the controller. False: the stream has ended."""
        self._must_register = False
        self.broker_epoch = None
        if self._registered.done():
            self._registered = asyncio.get_running_loop().create_future()
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE_UNTIL_READY, self._env.random)
        while not stream.closed.done():
            try:
                response = await stream.request(self._facts.registration(), timeout=_REGISTER_SECONDS)
                break
            except RemoteFailed as error:
                if not isinstance(error.error, ControllerNotReady):
                    raise error.error or error from None
            await asyncio.sleep(backoff.next())
        else:
            return False
        answer = expected(response.message, BrokerRegistered, stream.peer)
        self.controller_epoch = answer.controller_epoch
        self._check_controller()
        self.broker_epoch = answer.broker_epoch
        self._replicas.marks.registered()
        self._registered.set_result(None)
        _log.info("Registered with controller epoch %d as %d.", answer.controller_epoch, answer.broker_epoch)
        self._facts.registered()
        return True

    def _check_controller(self) -> None:
        promised = self._facts.promised_epoch
        if promised > self.controller_epoch:
            raise ControllerFenced(self.controller_epoch, promised)

    # --- signs of life --------------------------------------------------------------------------------------------

    async def _beat(self, stream: Stream) -> None:
        """Send heartbeats until this broker has to register again, or to look for another controller."""
        loop = asyncio.get_running_loop()
        self._is_reporting = False
        self._is_over = False
        next_beat = loop.time()
        while not (stream.closed.done() or self._must_register or self._is_over):
            self._check_controller()
            is_due = loop.time() >= next_beat
            if is_due:
                next_beat = loop.time() + HEARTBEAT_SECONDS
            # While a report is under way, news waits for its answer: the next report carries all of it.
            if is_due or (self._replicas.has_news and not self._is_reporting):
                self._send_beat(stream)
            self._has_news.clear()
            await self._wait_for_news(next_beat - loop.time())

    async def _wait_for_news(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._has_news.wait(), max(seconds, 0.0))
        except asyncio.TimeoutError:
            return

    def _send_beat(self, stream: Stream) -> None:
        assert self.broker_epoch is not None
        marks, are_all = self._replicas.marks.to_tell()
        beat = BrokerHeartbeat(
            self.broker_epoch,
            self._facts.version,
            *self._facts.usage,
            () if self._is_reporting else self._replicas.started(),
            () if self._is_reporting else self._replicas.lost(),
            marks,
            self._replicas.marks.have_full_disk or self._facts.usage[0] < FULL_BELOW_BYTES,
            self._replicas.hosts.running(),
            self._replicas.hosts.wanted(),
            are_all,
        )
        if beat.started or beat.lost:
            self._is_reporting = True
        answer = stream.request(beat, timeout=_ANSWER_SECONDS, wait=False)
        answer.add_done_callback(partial(self._answered, stream, beat))

    def _answered(self, stream: Stream, beat: BrokerHeartbeat, answer: asyncio.Future[Response]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if stream is not self._stream or beat.broker_epoch != self.broker_epoch:
            return
        if beat.started or beat.lost:
            self._is_reporting = False
        if error is None:
            self._replicas.reported(beat.started, beat.lost)
            self._replicas.marks.told(beat.marks, are_all=beat.marks_are_all)
        elif isinstance(error, RemoteFailed) and isinstance(error.error, StaleBrokerEpoch):
            self._must_register = True
        else:
            _log.warning("The controller at %s did not take a heartbeat: %s", stream.peer, error)
            self._is_over = True
        self._has_news.set()
