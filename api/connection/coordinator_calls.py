"""Asking a coordinator until it answers: it may not serve yet, or another one may have taken over."""

from __future__ import annotations

import asyncio
from typing import Final, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Message
from raylog.errors import ProducerError, RaylogError

_ASK_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5

_Answer = TypeVar("_Answer", bound=Message)


async def ask_coordinator(
    link: ClusterLink, topic: str, hashed: int, message: Message, expected: type[_Answer], seconds: float
) -> _Answer:
    """The answer of whoever serves the ids of this hash. The request may arrive more than once.

    At once: errors of producers and transactions that time does not heal. Out of time: the last error there was.
    """
    answer = await _until_answered(link, topic, hashed, message, seconds)
    assert isinstance(answer, expected), answer
    return answer


async def tell_coordinator(link: ClusterLink, topic: str, hashed: int, message: Message, seconds: float) -> None:
    """The same for what is answered by nothing but that it is done."""
    await _until_answered(link, topic, hashed, message, seconds)


async def _until_answered(link: ClusterLink, topic: str, hashed: int, message: Message, seconds: float) -> Message:
    wait = Wait(f"an answer to {type(message).__name__} by a coordinator of {topic}")
    try:
        return await _ask_until(link, topic, hashed, message, seconds, wait)
    finally:
        wait.over()


async def _ask_until(
    link: ClusterLink, topic: str, hashed: int, message: Message, seconds: float, wait: Wait
) -> Message:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, link.env.random)
    while True:
        left = min(_ASK_SECONDS, max(0.0, until - loop.time()))
        try:
            place = await link.find_coordinator(topic, hashed, left)
            return (await link.ask(place, message, timeout=left)).message
        except RaylogError as error:
            if isinstance(error, ProducerError) and not error.retriable:
                raise
            wait.failed(error)
            pause = backoff.next()
            if until - loop.time() <= pause:
                raise
        await link.changed(pause)  # who serves is part of what is known of the cluster
