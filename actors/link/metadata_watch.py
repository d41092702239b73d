"""Hearing of news: a question for newer metadata is kept open at up to three brokers at once.

So this client hears of a new leader from whichever of them hears first, within milliseconds; one that is stopped or cut
off cannot keep it from knowing. Broker by broker:

    chosen ──question──► asked ──answer──► asked again
                           └── no stream, no answer, or nothing new while others know more ──► another is chosen

What must stay true: what is asked for changes as topics become known, and the version that is waited on belongs to the
topics of the last question. A question for other topics is answered at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from raylog.actors.kernel.background_tasks import BackgroundTasks
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.link.broker_questions import Brokers
from raylog.actors.link.stream_pool import Endpoints, StreamPool
from raylog.actors.protocol.control_messages import GetMetadata, Metadata
from raylog.errors import PeerUnreachable, RaylogError

_AT_ONCE: Final = 3
_WAIT_MS: Final = 2_000
_ANSWER_SECONDS: Final = 4.0
_DIAL_SECONDS: Final = 3.0
_LOOK_AGAIN_SECONDS: Final = 0.1
_SPARE_SECONDS: Final = 1.0  # between looks whether there is a broker more than are asked


class MetadataWatch:
    """`topics` names those to ask for, none: all. `learn` takes each answer with the topics it was asked for.

    `version` tells the newest metadata version that is known here.
    """

    def __init__(
        self,
        pool: StreamPool,
        brokers: Brokers,
        topics: Callable[[], tuple[str, ...]],
        learn: Callable[[Metadata, tuple[str, ...]], None],
        version: Callable[[], int],
    ) -> None:
        self._pool = pool
        self._brokers = brokers
        self._topics = topics
        self._learn = learn
        self._version = version
        self._loop = asyncio.get_running_loop()
        self._asked: set[Endpoints] = set()
        self._begun_at = math.inf

    def begin(self, tasks: BackgroundTasks) -> None:
        """A second call changes nothing."""
        if self._begun_at == math.inf:
            self._begun_at = self._loop.time()
            for _ in range(_AT_ONCE):
                tasks.start(self._keep_asking())

    def seconds(self) -> float:
        """For how long it has asked."""
        return max(0.0, self._loop.time() - self._begun_at)

    def asked(self) -> set[Endpoints]:
        """The brokers with an open question."""
        return set(self._asked)

    async def _keep_asking(self) -> None:
        while True:
            broker = self._choose()
            if broker is None:
                if not self._asked:
                    await self._brokers.find_again()
                await asyncio.sleep(_SPARE_SECONDS if self._asked else _LOOK_AGAIN_SECONDS)
                continue
            self._asked.add(broker)
            try:
                error = await self._ask_at(broker)
            finally:
                self._asked.discard(broker)
            if error is not None:
                self._pool.failed(broker, error)

    def _choose(self) -> Endpoints | None:
        """The first broker that nobody asks."""
        free = (each for each in self._brokers.all() if each not in self._asked and not self._pool.is_paused(each))
        return next(free, None)

    async def _ask_at(self, broker: Endpoints) -> RaylogError | None:
        """Until it fails, and in what; None: it is no broker to ask any more."""
        try:
            return await self._ask_over(await self._pool.get(broker, _DIAL_SECONDS), broker)
        except RaylogError as error:
            return error

    async def _ask_over(self, stream: Stream, broker: Endpoints) -> RaylogError | None:
        version = -1
        of_topics: tuple[str, ...] | None = None
        while True:
            topics = self._topics()
            newer_than = version if topics == of_topics else -1
            answer = (await stream.request(GetMetadata(topics, newer_than, _WAIT_MS), timeout=_ANSWER_SECONDS)).message
            assert isinstance(answer, Metadata)
            self._learn(answer, topics)
            if answer.version <= newer_than and answer.version < self._version():
                return PeerUnreachable(stream.peer, "it does not know what other brokers know")
            if broker not in self._brokers:
                return None
            version, of_topics = answer.version, topics
