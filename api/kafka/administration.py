"""Requests of administrators to the controller, by way of any broker, within the time that a Kafka client gives.

    asked ──answer, or the controller's own refusal──► over
      ▲ └──no controller, nothing was done──► pause ─┐
      │ └──lost before it answered: it may have run──┤ (rule 27)
      └──────────────────────────────────────────────┘

What must stay true:
- Nothing is done twice. A topic is created under an id that is drawn here, and deleted by its id. So what an attempt
  without an answer has done is recognised by the attempt after it, and is no error to the client.
- What a controller says is no older than what this gateway has heard before. One that was replaced, and does not know
  it yet, is not believed.
- Every wait ends within the time given, in an answer or in one typed error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from raylog.actors.cluster.admin_requests import (
    AdminRequest,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    DescribeTopic,
)
from raylog.actors.cluster.admin_wire import answer_of, plain_request
from raylog.actors.cluster.descriptions import TopicDescription
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import may_pass, until_answered
from raylog.actors.protocol.admin_messages import Administer, Administered
from raylog.errors import (
    AdminTimedOut,
    ControllerFenced,
    ControllerNotReady,
    ControllerStopped,
    FrameInvalid,
    InternalOnly,
    InvalidPartitions,
    RaylogError,
    RemoteFailed,
    StreamError,
    TopicExists,
    TopicStillStarting,
    UnknownTopic,
)

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_TRAVEL_SECONDS: Final = 1.0  # for an answer of the controller that has used all of its time
_KNOWN_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.1
_TOPIC_ID_BYTES: Final = 16
_OF_ADMINISTRATION: Final = (ControllerNotReady, ControllerFenced, ControllerStopped)
_T = TypeVar("_T")


class Administration:
    """Asks the controller. `timeout` is given in seconds."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._seen = -1  # the newest metadata version that is known here

    async def ask(self, request: AdminRequest[_T], timeout: float) -> _T:
        """Ask for what is the same whether it is done once or twice.

        Raises what the controller raises; AdminTimedOut, ControllerNotReady, StreamError: the time is over.
        """
        return await self._until_answered(lambda: request, timeout, _refuse)

    async def create_topic(self, request: CreateTopic, timeout: float) -> TopicDescription:
        """Create a topic. It is there once it is known here too."""
        if request.validate_only:
            return await self.ask(request, timeout)
        drawn: set[bytes] = set()
        deadline = self._loop.time() + timeout

        def attempt() -> CreateTopic:
            topic_id = self._link.env.random.randbytes(_TOPIC_ID_BYTES)
            drawn.add(topic_id)
            return replace(request, topic_id=topic_id)

        async def resolve(error: RaylogError) -> TopicDescription:
            if not isinstance(error, TopicExists):
                raise error
            found = await self.ask(DescribeTopic(request.name), deadline - self._loop.time())
            if found.topic_id not in drawn:
                raise error
            return await self._until_led(found, deadline, timeout)

        made = await self._until_answered(attempt, timeout, resolve)
        await self._until(lambda: self._id_of(request.name) == made.topic_id)
        return made

    async def delete_topic(self, topic: str, topic_id: bytes, timeout: float) -> None:
        """Delete the topic of this name that has this id. UnknownTopic."""

        async def resolve(error: RaylogError) -> None:
            if not isinstance(error, UnknownTopic):
                raise error

        await self._until_answered(lambda: DeleteTopic(topic, topic_id), timeout, resolve)
        await self._until(lambda: self._id_of(topic) != topic_id)

    async def create_partitions(self, request: CreatePartitions, timeout: float) -> TopicDescription:
        """Let a topic have more partitions."""
        deadline = self._loop.time() + timeout

        async def resolve(error: RaylogError) -> TopicDescription:
            if not isinstance(error, InvalidPartitions):
                raise error
            found = await self.ask(DescribeTopic(request.topic), deadline - self._loop.time())
            if len(found.partitions) != request.total:
                raise error
            return await self._until_led(found, deadline, timeout)

        made = await self._until_answered(lambda: request, timeout, resolve)
        if not request.validate_only:
            await self._until(lambda: self._count(request.topic) >= request.total)
        return made

    # --- how ------------------------------------------------------------------------------------------------------

    async def _until_answered(
        self,
        attempt: Callable[[], AdminRequest[_T]],
        timeout: float,
        resolve: Callable[[RaylogError], Any],
    ) -> _T:
        """Ask until the controller has answered. `resolve` is given a refusal that comes after an attempt that may
        have run: it returns the answer if that one was carried out, else it raises."""
        doubt = _Doubt()
        try:
            return await until_answered(
                partial(self._ask_once, attempt, doubt),
                Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._link.env.random),
                is_final=lambda error: not _may_pass(error),
                failed=doubt.note,
                seconds=timeout,
            )
        except RaylogError as error:
            if _may_pass(error):
                raise AdminTimedOut(doubt.asked, round(1000 * timeout)) from error
            if not doubt.may_have_run:
                raise
            answer: _T = await resolve(error)
            return answer

    async def _ask_once(self, attempt: Callable[[], AdminRequest[_T]], doubt: _Doubt, seconds: float) -> _T:
        request = attempt()
        doubt.asked = request.asked
        self._seen = max(self._seen, self._link.topics()[0])
        message = Administer(request.call, plain_request(request), max(1, round(1000 * seconds)), self._seen)
        told = await self._link.ask_a_broker(message, expect=Administered, timeout=seconds + _TRAVEL_SECONDS)
        self._seen = max(self._seen, told.version)
        return answer_of(request, told.answer)

    async def _until_led(self, topic: TopicDescription, deadline: float, timeout: float) -> TopicDescription:
        """Wait for leaders, as the controller does for the request that it answers."""
        while leaderless := [each.partition for each in topic.partitions if each.is_offline]:
            left = deadline - self._loop.time()
            if left <= _LOOK_AGAIN_SECONDS:
                raise TopicStillStarting(f"{topic.name}-{leaderless[0]}", round(1000 * timeout))
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
            topic = await self.ask(DescribeTopic(topic.name), left)
        return topic

    async def _until(self, is_known: Callable[[], bool]) -> None:
        """Wait until this gateway knows it too; for a moment only, since it is done. Then clients are told so."""
        deadline = self._loop.time() + _KNOWN_SECONDS
        while not is_known() and (left := deadline - self._loop.time()) > 0:
            await self._link.changed(left)

    def _id_of(self, topic: str) -> bytes:
        view = self._link.topic(topic)
        return b"" if view is None else view.topic_id

    def _count(self, topic: str) -> int:
        view = self._link.topic(topic)
        return 0 if view is None else len(view.partitions)


class _Doubt:
    """Whether an attempt may have run, though nobody has answered it (rule 27)."""

    def __init__(self) -> None:
        self.asked = ""
        self.may_have_run = False

    def note(self, error: RaylogError) -> None:
        self.may_have_run |= getattr(error, "outcome_unknown", False)


def _may_pass(error: RaylogError) -> bool:
    """Whether another attempt may be answered: the controller was not there, or has gone."""
    if isinstance(error, StreamError):
        return may_pass(error) and not isinstance(error, (RemoteFailed, InternalOnly, FrameInvalid))
    return isinstance(error, _OF_ADMINISTRATION)


async def _refuse(error: RaylogError) -> Any:
    raise error
