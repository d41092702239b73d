"""Topics that are made because a Kafka client asks for them, where `auto.create.topics.enable` of the cluster is true.

The client hears that there is no leader yet, and asks again. What must stay true:
- A name is being made once at a time, and only so many names at once; what is too much is made when asked for again.
- The setting is asked for at most every few seconds, however often clients name what is not there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from raylog.actors.cluster.admin_requests import CreateTopic, DescribeClusterSettings
from raylog.actors.cluster.cluster_settings import AUTO_CREATE
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.protocol.names import check_topic_name
from raylog.api.kafka.administration import Administration
from raylog.errors import InvalidTopicName, RaylogError, TopicExists

_ASK_SECONDS: Final = 1.0  # the client waits for it
_CREATE_SECONDS: Final = 30.0
_KNOWN_SECONDS: Final = 3.0
_MOST_AT_ONCE: Final = 100
_log = RareLog(logging.getLogger(__name__))


class AutoCreation:
    """Makes topics beside the answers to clients."""

    def __init__(self, administration: Administration) -> None:
        self._administration = administration
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(self._broke)
        self._under_way: set[str] = set()
        self._is_on = False
        self._known_until = -1.0

    async def begin(self, names: Collection[str]) -> Collection[str]:
        """Begin to make these topics. Returns those of them that will be there in a moment."""
        wanted = [name for name in names if _may_be_made(name)]
        if not wanted or not await self._is_wanted():
            return ()
        for name in wanted:
            if name not in self._under_way and len(self._under_way) < _MOST_AT_ONCE:
                self._under_way.add(name)
                self._tasks.start(self._create(name))
        return wanted

    async def close(self) -> None:
        """Wait for nothing that is under way."""
        await self._tasks.close()

    async def _is_wanted(self) -> bool:
        if self._loop.time() >= self._known_until:
            self._known_until = self._loop.time() + _KNOWN_SECONDS
            try:
                settings = await self._administration.ask(DescribeClusterSettings(), _ASK_SECONDS)
            except RaylogError as error:
                _log.warning("Whether topics are made when they are asked for is not known anew: %s", error)
            else:
                self._is_on = settings[AUTO_CREATE] == "true"
        return self._is_on

    async def _create(self, name: str) -> None:
        try:
            await self._administration.create_topic(CreateTopic(name, None, None, None, {}), _CREATE_SECONDS)
        except TopicExists:
            return  # another gateway was quicker
        except RaylogError as error:
            _log.warning("Topic %r, which a Kafka client has asked for, is not made: %s", name, error)
        finally:
            self._under_way.discard(name)

    def _broke(self, error: BaseException) -> None:
        _log.warning("A topic was not made, by a mistake of raylog's own: %r", error)


def _may_be_made(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return False
    return True
