"""Asking a coordinator until it answers: it may not serve yet, or another one may have taken over."""

from __future__ import annotations

from functools import partial
from typing import Final, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import until_answered
from raylog.actors.protocol.messages import Message
from raylog.errors import ProducerError, RaylogError

_ASK_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5

_Answer = TypeVar("_Answer", bound=Message)


async def ask_coordinator(
    link: ClusterLink, topic: str, hashed: int, message: Message, expect: type[_Answer], seconds: float
) -> _Answer:
    """The answer of whoever serves the ids of this hash. The request may arrive more than once.

    At once: errors of producers and transactions that time does not heal. Out of time: the last error there was.
    """
    with Wait(f"an answer to {type(message).__name__} by a coordinator of {topic}") as wait:
        return await until_answered(
            partial(_ask_once, link, topic, hashed, message, expect),
            Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, link.env.random),
            is_final=_is_final,
            failed=wait.failed,
            pause=link.changed,  # who serves is part of what is known of the cluster
            seconds=seconds,
        )


async def _ask_once(
    link: ClusterLink, topic: str, hashed: int, message: Message, expect: type[_Answer], left: float
) -> _Answer:
    seconds = min(_ASK_SECONDS, left)
    place = await link.find_coordinator(topic, hashed, seconds)
    return (await link.ask(place, message, expect=expect, timeout=seconds)).message


def _is_final(error: RaylogError) -> bool:
    return isinstance(error, ProducerError) and not error.retriable
