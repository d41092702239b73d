"""A client's link to one cluster: who leads what, and requests to the leaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from raylog.actors.environment import Environment
from raylog.actors.messages import Message
from raylog.actors.stream_interface import Endpoint, Response
from raylog.api.topic_cache import PartitionLeader, TopicView
from raylog.storage.record_batch import Bytes

__all__ = ["ClusterLink", "PartitionLeader", "TopicView"]

_NOT_YET: Final = "the link comes in the next change"


class ClusterLink:
    """Made on its event loop. `node_id`: the Ray node of this process where it may read files of replicas, else empty.

    Its errors, beside those of the request itself: ClusterUnreachable, UnknownTopic, PeerNotAdmitted.
    """

    def __init__(self, env: Environment, bootstrap: Sequence[Endpoint], node_id: str = "") -> None:
        self.env = env
        self.node_id = node_id
        self._bootstrap = tuple(bootstrap)

    def topic(self, name: str) -> TopicView | None:
        """What is known, without waiting."""
        raise NotImplementedError(_NOT_YET)

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        """What is known, without waiting. None: the topic or the partition is unknown."""
        raise NotImplementedError(_NOT_YET)

    async def find_topic(self, name: str, timeout: float) -> TopicView:
        """UnknownTopic, ClusterUnreachable, PeerNotAdmitted."""
        raise NotImplementedError(_NOT_YET)

    async def list_topics(self, timeout: float) -> tuple[TopicView, ...]:
        """All there are now, by name. ClusterUnreachable, PeerNotAdmitted."""
        raise NotImplementedError(_NOT_YET)

    async def refresh(self, timeout: float) -> None:
        """Know what a broker knows after this call began. ClusterUnreachable, PeerNotAdmitted."""
        raise NotImplementedError(_NOT_YET)

    async def changed(self, timeout: float) -> bool:
        """Wait for a newer metadata version; False: there was none in that time."""
        raise NotImplementedError(_NOT_YET)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it, on the loop, after each change of what is known. Returns what unsubscribes it."""
        raise NotImplementedError(_NOT_YET)

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, timeout: float
    ) -> Response:
        """Ask that leader. An error of the other side that is one of raylog's is raised as itself.

        PeerUnreachable, StreamNotOpen, TooManyBytesInFlight: nothing was sent. StreamClosed, RequestTimedOut: the
        outcome is unknown (rule 27), also where the request was given up because a newer leader epoch is known.
        """
        raise NotImplementedError(_NOT_YET)

    async def connect(self, leader: PartitionLeader, timeout: float) -> None:
        """Have a stream to that leader. PeerUnreachable, PeerNotAdmitted."""
        raise NotImplementedError(_NOT_YET)

    def say(self, leader: PartitionLeader, message: Message, payload: Bytes = b"") -> None:
        """One-way, for acks=0. StreamNotOpen: there is no stream to it (`connect`, `ask`); TooManyBytesInFlight."""
        raise NotImplementedError(_NOT_YET)

    async def producer_id(self, timeout: float) -> int:
        """One that is never given to anybody else (rule 18). ClusterUnreachable."""
        raise NotImplementedError(_NOT_YET)

    async def close(self) -> None:
        """What is in flight ends in StreamClosed."""
        raise NotImplementedError(_NOT_YET)
