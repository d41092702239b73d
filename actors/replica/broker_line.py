"""A host's line to its broker: who runs here, signs of life, and what a replica asks.

    looking ──stream──► saying hello ──answered──► beating
       ▲                                              │
       └──────────────── stream ended, refused ───────┘

What must stay true:
- A broker that went away is dialled again, and hears all of it anew: the host, each replica that runs, their marks, and
  which replicas have failed meanwhile. The host goes on until then: its broker is not in the path of data.
- A hello that is still on its way never comes after a later one: the stream ends first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Final, Protocol

from raylog.actors.kernel.background import HEARTBEAT_SECONDS
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Handler, Response, Stream
from raylog.actors.protocol.control_messages import ReplicaMarks
from raylog.actors.protocol.host_messages import HostHeartbeat, HostHello, ReplicaFailed, ReplicaHello
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.errors import StreamError, StreamNotOpen

_REDIAL_SECONDS: Final = 0.1
_ASK_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


class HostFacts(Protocol):
    """Facts that the line tells of its host, each time anew."""

    def hello(self) -> HostHello:
        """Say which host this is."""

    def replicas(self) -> Iterable[ReplicaHello]:
        """Name all replicas that run in it."""

    def marks(self) -> Iterable[ReplicaMarks]:
        """Say how far their logs reach."""

    def changed_marks(self) -> Iterable[ReplicaMarks]:
        """Say the same of those that may have changed since this was asked last."""


class BrokerLine:
    """`handler` takes what the broker asks."""

    def __init__(self, env: Environment, spec: HostSpec, handler: Handler, facts: HostFacts) -> None:
        self._env = env
        self._spec = spec
        self._handler = handler
        self._facts = facts
        self._stream: Stream | None = None
        self._untold: list[ReplicaFailed] = []

    async def keep(self) -> None:
        """Keep a stream to the broker, until this is cancelled."""
        while True:
            stream: Stream | None = None
            try:
                stream = await self._env.dial(self._spec.broker, "replica", self._handler)
                await stream.request(self._facts.hello(), timeout=_ASK_SECONDS)
                self._stream = stream
                await self._use(stream)
            except StreamError as error:
                _log.info("%s: no broker for the moment: %s", self._spec, error)
            self._stream = None
            if stream is not None:
                await stream.close(0)
            await asyncio.sleep(_REDIAL_SECONDS * (1 + self._env.random.random()))

    async def _use(self, stream: Stream) -> None:
        for hello in self._facts.replicas():
            self._say(stream, hello)
        untold, self._untold = self._untold, []
        for failure in untold:
            self.tell_failure(failure)
        told: dict[tuple[bytes, int], ReplicaMarks] = {}
        marks = self._facts.marks()
        while not stream.closed.done():
            news = [each for each in marks if told.get((each.topic_id, each.partition)) != each]
            told.update(((each.topic_id, each.partition), each) for each in news)
            stream.send(HostHeartbeat(tuple(news)))
            await asyncio.wait([stream.closed], timeout=HEARTBEAT_SECONDS)
            marks = self._facts.changed_marks()

    def announce(self, hello: ReplicaHello) -> None:
        """Tell that a replica has opened its log: now, or with all others when there is a broker again."""
        if self._stream is not None:
            self._say(self._stream, hello)

    def tell_failure(self, failure: ReplicaFailed) -> None:
        """Tell that a replica is over, while its host goes on."""
        try:
            if self._stream is not None:
                self._stream.send(failure)
                return
        except StreamError as error:
            _log.info("%s: its broker hears of a failure later: %s", self._spec, error)
        self._untold.append(failure)

    async def ask(self, message: Message, seconds: float = _ASK_SECONDS) -> Response:
        """Return what the broker answers. StreamNotOpen where there is none just now."""
        if self._stream is None:
            raise StreamNotOpen("the broker", "it is looked for again")
        return await self._stream.request(message, timeout=seconds)

    async def close(self) -> None:
        if self._stream is not None:
            await self._stream.close(timeout=1.0)

    def _say(self, stream: Stream, hello: ReplicaHello) -> None:
        answered = stream.request(hello, timeout=_ASK_SECONDS)
        answered.add_done_callback(partial(self._answered, hello))

    def _answered(self, hello: ReplicaHello, answer: asyncio.Future[Response]) -> None:
        """Log a refusal. A replica that is refused is told to end; one that was not heard is told of again."""
        error = None if answer.cancelled() else answer.exception()
        if error is not None:
            _log.info("%s: its replica %s-%d: %s", self._spec, hello.topic_id.hex(), hello.partition, error)
