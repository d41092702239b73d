"""The simplest coordinator: it keeps a number for each name. To see what all coordinators promise.

    Put(name, number)   done once it is kept; numbers of a name only rise
    Look(name)          the number
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import Reading
from raylog.actors.kernel.stream_interface import Answer, Request, Response, unknown
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import CoordinatorAddress
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done, Message, message
from raylog.errors import InvalidRequest, RaylogError

_ASK_SECONDS = 3.0
_FIND_SECONDS = 5.0
_PAUSE_SECONDS = 0.1
_LOOK_SECONDS = 0.03


@message(kind=246, for_clients=True)
@dataclass(frozen=True, slots=True)
class Put(Message):
    name: str
    number: int


@message(kind=247, for_clients=True)
@dataclass(frozen=True, slots=True)
class Look(Message):
    name: str


@message(kind=248)
@dataclass(frozen=True, slots=True)
class Looked(Message):
    number: int


class KeptNumbers:
    """A `CoordinatorCore`."""

    def __init__(self, log: CoordinatorLog) -> None:
        self._log = log
        self._numbers: dict[str, int] = {}

    async def start(self) -> None:
        end = await self._log.claim()
        async for entries in self._log.replay(end):
            for key, value, _ in entries:
                self._numbers[key.decode()] = int(value or b"-1")

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        asked = request.message
        if isinstance(asked, Look):
            return Response(Looked(self._numbers.get(asked.name, -1)))
        if not isinstance(asked, Put):  # a follower, say, at the address that a replica's host had before
            raise unknown(asked)
        return self._put(asked)

    async def _put(self, asked: Put) -> Answer:
        if asked.number < self._numbers.get(asked.name, -1):
            raise InvalidRequest(f"{asked.name} is at {self._numbers[asked.name]} already.")
        self._numbers[asked.name] = asked.number
        await self._log.append([(asked.name.encode(), b"%d" % asked.number)])
        return None

    def readings(self) -> Iterable[Reading]:
        return ()

    async def close(self) -> None:
        """Nothing is its own."""


def make(_env: Environment, _spec: CoordinatorSpec, log: CoordinatorLog, _link: ClusterLink) -> KeptNumbers:
    return KeptNumbers(log)


@dataclass
class NumberWriter:
    """Raises the number of one name, one after the other, and looks at it in between."""

    env: Environment
    brokers: list[Endpoint]
    topic: str
    name: str
    acknowledged: int = -1
    problems: list[str] = field(default_factory=list)
    is_stopped: bool = False
    looked: int = 0
    last_error: str = ""

    async def run(self) -> None:
        link = ClusterLink(self.env, self.brokers)
        number = 0
        while not self.is_stopped:
            try:
                place = await link.find_coordinator(self.topic, sum(self.name.encode()), _FIND_SECONDS)
                await link.ask(place, Put(self.name, number), expect=Done, timeout=_ASK_SECONDS)
                self.acknowledged = number
                number += 1
                looked = (await link.ask(place, Look(self.name), expect=Looked, timeout=_ASK_SECONDS)).message
                if looked.number != self.acknowledged:
                    self.problems.append(f"{self.name} is {looked.number}, but {self.acknowledged} was acknowledged")
            except InvalidRequest as error:
                self.problems.append(str(error))
                return
            except RaylogError as error:
                self.last_error = str(error)
            await asyncio.sleep(self.env.random.uniform(0.0, _PAUSE_SECONDS))
        await link.close()

    async def look_on(self, env: Environment) -> None:
        """Look at the number from another machine, at the same coordinator for as long as it answers."""
        link = ClusterLink(env, self.brokers)
        place: CoordinatorAddress | None = None
        while not self.is_stopped:
            try:
                place = place or await link.find_coordinator(self.topic, sum(self.name.encode()), _FIND_SECONDS)
                before = self.acknowledged
                told = (await link.ask(place, Look(self.name), expect=Looked, timeout=_ASK_SECONDS)).message
                self.looked += 1
                if told.number < before:
                    self.problems.append(f"{self.name} was shown at {told.number} when {before} was acknowledged")
            except RaylogError:
                place = None
            await asyncio.sleep(env.random.uniform(0.0, _LOOK_SECONDS))
        await link.close()
