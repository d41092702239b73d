"""A client's link to one cluster: who leads what, and requests to the leaders.

    metadata_watch ──answers──► topic_cache ──► on_change, changed()
    ask() ──► stream_pool ──► the leader        leader_requests: given up when the cache knows a newer epoch
    find_topic(), refresh(), producer_id() ──► questions.py ──► any broker

What must stay true:
- Every wait here ends within its time-out, in an answer or in one typed error that says what to do.
- An unexpected error ends the link: every later use of it raises that error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream, Told
from raylog.actors.link.offset_questions import OffsetQuestions
from raylog.actors.link.questions import BrokerQuestions, Brokers, FindBrokers, MetadataWatch
from raylog.actors.link.rules.topic_cache import CoordinatorAddress, PartitionLeader, TopicCache, TopicView
from raylog.actors.link.stream_pool import LeaderRequests, StreamPool, replaced
from raylog.actors.protocol.control_messages import (
    NOTHING_KNOWN,
    AllocateProducerIds,
    GetMetadata,
    Metadata,
    ProducerIdsAllocated,
)
from raylog.actors.protocol.coordinator_messages import EnsureCoordinators, FindTopicById, TopicFoundById
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.replication_messages import ListedOffset
from raylog.errors import (
    AnswerUnexpected,
    ClusterUnreachable,
    CoordinatorNotReady,
    MessageUnknown,
    PeerNotAdmitted,
    PeerUnreachable,
    RaylogError,
    RemoteFailed,
    RequestTimedOut,
    StreamNotOpen,
    UnknownPartition,
    UnknownTopic,
)
from raylog.storage.format.record_batch import Bytes

__all__ = ["ClusterLink", "CoordinatorAddress", "PartitionLeader", "TopicView"]

_GRACE_SECONDS: Final = 1.0  # in which a broker may hear of a topic that was created a moment ago
_LOOK_AGAIN_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 1.0
_KNOW_LESS: Final = "those that answer know less of the cluster than others have told before"

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer", bound=Message)


class ClusterLink:
    """A link to one cluster, made on its event loop.

    `node_id`: the Ray node of this process where it may read files of replicas, else empty. `find_brokers` finds
    addresses anew where no known one answers: after a restart brokers may have others. `for_clients`: requests carry
    no more rights than the clients that they are for (rules 33, 36), but for `order` and what the controller is asked.

    Its errors, beside those of the request itself: ClusterUnreachable, UnknownTopic, PeerNotAdmitted.
    """

    def __init__(
        self,
        env: Environment,
        bootstrap: Sequence[Endpoint],
        node_id: str = "",
        find_brokers: FindBrokers | None = None,
        *,
        for_clients: bool = False,
    ) -> None:
        self.env = env
        self.node_id = node_id
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(self._broke)
        self._cache = TopicCache(node_id)
        self._topics: tuple[str, ...] = ()  # those that were asked for, sorted
        self._follows_all = False
        self._brokers = Brokers(bootstrap, node_id, env.random, find_brokers)
        self._pool = StreamPool(env.as_client() if for_clients else env, self._tasks, self._brokers.find_again)
        self._questions = BrokerQuestions(self._pool, self._brokers, env.random)
        # For what is decided by who asks over it: what its own clients may ask (rule 36).
        self._inner_pool = StreamPool(env, self._tasks, self._brokers.find_again) if for_clients else self._pool
        self._inner_questions = BrokerQuestions(self._inner_pool, self._brokers, env.random)
        self._watch = MetadataWatch(
            self._pool, self._brokers, self._followed, self._learn, lambda: self._cache.version, self._cache.version_of
        )
        self._requests = LeaderRequests()
        self._offsets = OffsetQuestions(self, self._tasks)
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._is_news: asyncio.Future[None] = self._loop.create_future()
        self._refreshing: asyncio.Task[Metadata] | None = None
        self._finding: dict[str, tuple[asyncio.Task[Metadata], float]] = {}  # with the time when it was asked
        self._broken: BaseException | None = None

    @property
    def is_over(self) -> bool:
        return self._broken is not None

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def broker_count(self) -> int:
        """Return how many brokers are not fenced; 0: no metadata have come yet."""
        return self._brokers.count

    def topic(self, name: str) -> TopicView | None:
        """Return what is known of a topic, without waiting. None: it is unknown."""
        return self._cache.topic(name)

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        """Return who leads a partition, without waiting. None: the topic or the partition is unknown."""
        return self._cache.leader(topic, partition)

    async def find_topic(self, name: str, timeout: float) -> TopicView:
        """Return what is known of a topic, and ask brokers where that is nothing.

        UnknownTopic: no broker knows it, after a moment of grace. ClusterUnreachable, PeerNotAdmitted. A broker whose
        metadata are older than this client's can show that a topic exists, but not that it does not.
        """
        began = self._loop.time()
        deadline = began + timeout
        grace = began + min(_GRACE_SECONDS, timeout)
        self._check()
        self._want(name)
        while (view := self._cache.topic(name)) is None:
            newest = self._cache.version
            answer, asked_at = await self._ask_for_topic(name, deadline)
            if self._cache.topic(name) is not None:
                continue
            is_known = answer.version >= newest and asked_at >= began
            if is_known and self._loop.time() >= grace:
                raise UnknownTopic(name)
            if not is_known and self._loop.time() + _LOOK_AGAIN_SECONDS >= deadline:
                raise self._questions.unreachable(timeout, _KNOW_LESS)
            pause = min(_LOOK_AGAIN_SECONDS, grace - self._loop.time()) if is_known else _LOOK_AGAIN_SECONDS
            await self.changed(max(pause, 0.0))
        return view

    async def is_deleted(self, topic_id: bytes, timeout: float) -> bool:
        """Return whether a topic that existed is deleted for good, as the controller says. Not for clients.

        ClusterUnreachable, PeerNotAdmitted, ControllerNotReady: that is unknown.
        """
        return not await self.find_name(topic_id, timeout)

    async def find_name(self, topic_id: bytes, timeout: float) -> str:
        """Return the name of the topic of this id, as the controller knows it; empty: none has it now. As above."""
        self._check()
        question = FindTopicById(topic_id, self._cache.version)
        return (await self._inner_questions.ask(question, TopicFoundById, timeout)).name

    async def find_coordinator(self, topic: str, hashed: int, timeout: float) -> CoordinatorAddress:
        """Return the coordinator that serves the ids of this hash. The internal topic is made if it is missing.

        CoordinatorNotReady: none served in that time. ClusterUnreachable, PeerNotAdmitted.
        """
        deadline = self._loop.time() + timeout
        self._check()
        if self._cache.topic(topic) is None:
            await self._questions.ask(EnsureCoordinators(topic), Done, timeout)
        partitions = (await self.find_topic(topic, max(deadline - self._loop.time(), 0.0))).partitions
        number = hashed % len(partitions)
        while True:
            known = self._cache.coordinator(topic, number)
            if known is not None and known.endpoints:
                return known
            left = deadline - self._loop.time()
            if left <= 0:
                raise CoordinatorNotReady(topic, number)
            await self.changed(min(_LOOK_AGAIN_SECONDS, left))

    async def list_topics(self, timeout: float) -> tuple[TopicView, ...]:
        """Return all topics by name, as of a metadata version at least as new as this client has seen.

        ClusterUnreachable, also where only brokers with older metadata answer; PeerNotAdmitted.
        """
        self._check()
        answer = await self._up_to_date((), timeout)
        self._learn(answer, self._topics)
        return tuple(self._cache.view_of(topic) for topic in answer.topics)

    async def describe(self, topics: tuple[str, ...], timeout: float) -> Metadata:
        """Return the metadata of these topics (empty: of all), at least as new as what this client has seen.

        Topics that do not exist are left out, and nothing is kept of their names. ClusterUnreachable, PeerNotAdmitted.
        """
        self._check()
        answer = await self._up_to_date(topics, timeout)
        found = tuple(topic.name for topic in answer.topics)
        if found or not topics:
            self._learn(answer, found if topics else ())
        return answer

    async def hear_others(self) -> None:
        """Return when several brokers had time to answer. A single one may be cut off from the others."""
        self._check()
        self._watch.begin(self._tasks)
        await asyncio.sleep(max(0.0, _GRACE_SECONDS - self._watch.seconds()))
        self._check()

    async def follow_all(self, timeout: float) -> None:
        """Keep all topics up to date from now on, for `topics()`. ClusterUnreachable, PeerNotAdmitted."""
        self._check()
        self._follows_all = True
        self._watch.begin(self._tasks)
        self._learn(await self._up_to_date((), timeout), ())

    def topics(self) -> tuple[int, Iterable[TopicView]]:
        """Return (metadata version, all topics as of it). Only valid after `follow_all`."""
        return self._cache.complete_version, self._cache.topics()

    def rack_of(self, broker: int) -> str:
        """Return the rack of a broker; empty: it has none, or is not known."""
        return self._brokers.rack_of(broker)

    async def refresh(self, timeout: float) -> None:
        """Fetch newer metadata; calls at the same time share one question. ClusterUnreachable, PeerNotAdmitted."""
        self._check()
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = self._loop.create_task(self._ask_and_learn(timeout))
            self._refreshing.add_done_callback(_was_seen)
        refreshing = self._refreshing  # by the time it is over the next one may have begun
        # It is not cancelled with this call: others may wait for it.
        await asyncio.wait([refreshing], timeout=timeout)
        if refreshing.done():
            refreshing.result()
        else:
            raise self._questions.unreachable(timeout)

    async def changed(self, timeout: float) -> bool:
        """Wait for a newer metadata version. Return whether there was one in that time."""
        self._check()
        self._watch.begin(self._tasks)
        await asyncio.wait([news := self._is_news], timeout=timeout)
        self._check()
        return news.done()

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, on the loop, after each change of what is known of topics. Return what ends that."""
        self._check()
        self._watch.begin(self._tasks)
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    # --- asking ---------------------------------------------------------------------------------------------------

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[_Answer], timeout: float
    ) -> Told[_Answer]:
        """Ask that leader for an answer of that kind. An error of raylog's on the other side is raised as itself.

        PeerUnreachable, StreamNotOpen, TooManyBytesInFlight: nothing was sent. StreamClosed, RequestTimedOut: the
        outcome is unknown (rule 27), also where the request was given up because a newer leader epoch is known.
        AnswerUnexpected: another kind of answer came; the outcome is unknown.
        Requests to one leader are sent in the order in which they were asked.
        """
        return await self._ask_over(self._pool, leader, message, payload, expect, timeout)

    async def order(
        self, leader: PartitionLeader, message: Message, *, expect: type[_Answer], timeout: float
    ) -> Told[_Answer]:
        """Ask what only processes of the cluster may ask (rule 33). Errors are as of `ask`, also InternalOnly."""
        return await self._ask_over(self._inner_pool, leader, message, b"", expect, timeout)

    async def _ask_over(
        self,
        pool: StreamPool,
        leader: PartitionLeader,
        message: Message,
        payload: Bytes,
        expect: type[_Answer],
        timeout: float,
    ) -> Told[_Answer]:
        stream, left = await self._stream_in(pool, leader, timeout)
        reply = stream.request(message, payload, topic_id=leader.topic_id, partition=leader.partition, timeout=left)
        return await self._answer(pool, stream, leader, self._requests.sent(reply, leader), expect)

    async def ask_process(
        self, leader: PartitionLeader, message: Message, *, expect: type[_Answer], timeout: float
    ) -> Told[_Answer]:
        """Ask the process of that leader for what is about several of its partitions, or none. Errors are as of `ask`.

        It is not given up when that one partition has a newer leader.
        """
        stream, left = await self._stream_in(self._pool, leader, timeout)
        return await self._answer(self._pool, stream, leader, stream.request(message, timeout=left), expect)

    async def offset_at(self, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float) -> ListedOffset:
        """Return the offset at a timestamp, or EARLIEST, or LATEST. Many that are asked for at once go together.

        Errors are those of `ask`.
        """
        return await self._offsets.ask(leader, timestamp, committed, timeout)

    async def _stream_in(self, pool: StreamPool, leader: PartitionLeader, timeout: float) -> tuple[Stream, float]:
        """Return a stream to that leader, and the seconds that are left."""
        stream = pool.open(leader.endpoints)
        if stream is not None:
            return stream, timeout
        deadline = self._loop.time() + timeout
        stream = await self._stream(pool, leader, timeout)
        return stream, max(deadline - self._loop.time(), 0.0)

    async def _answer(
        self, pool: StreamPool, stream: Stream, leader: PartitionLeader, reply: Awaitable[Any], expect: type[_Answer]
    ) -> Told[_Answer]:
        try:
            response: Told[_Answer] = await reply
        except RemoteFailed as error:
            if _is_stranger(leader, error.error):  # that port is another process's by now
                wanted = f"{leader.topic}-{leader.partition}"
                not_it = PeerUnreachable(stream.peer, f"it is no replica or coordinator of {wanted}")
                pool.failed(leader.endpoints, not_it)
                raise not_it from None
            if error.error is None:
                raise
            raise error.error from None
        except asyncio.CancelledError:
            stream.look_for_cancelled()
            raise
        except RequestTimedOut:
            pool.check(leader.endpoints)
            raise
        if type(response.message) is not expect:
            raise AnswerUnexpected(stream.peer, expect.__name__, type(response.message).__name__)
        return response

    async def connect(self, leader: PartitionLeader, timeout: float) -> None:
        """Open a stream to that leader, if there is none. PeerUnreachable, StreamNotOpen."""
        if self._pool.open(leader.endpoints) is None:
            await self._stream(self._pool, leader, timeout)

    def say(self, leader: PartitionLeader, message: Message, payload: Bytes = b"") -> None:
        """Send without an answer, for acks=0. StreamNotOpen: call `connect` or `ask` first. TooManyBytesInFlight."""
        stream = self._pool.open(leader.endpoints)
        if stream is None or stream.closed.done():
            raise StreamNotOpen(f"the leader of {leader.topic}-{leader.partition}", "there is none")
        stream.send(message, payload, topic_id=leader.topic_id, partition=leader.partition)

    async def producer_id(self, timeout: float) -> int:
        """Return a producer id that was never given out before (rule 18).

        ClusterUnreachable, PeerNotAdmitted, ControlError. Where an answer is lost another broker is asked, and one id
        is never used.
        """
        self._check()
        return (await self._questions.ask(AllocateProducerIds(1), ProducerIdsAllocated, timeout)).first

    async def ask_a_broker(self, message: Message, *, expect: type[_Answer], timeout: float) -> _Answer:
        """Ask one broker once, for what must not be done twice. See `BrokerQuestions.ask_one` for its errors."""
        self._check()
        return await self._inner_questions.ask_one(message, expect, timeout)

    async def close(self) -> None:
        """Close the link. Requests in flight end in StreamClosed."""
        if self._broken is None:
            self._broken = StreamNotOpen("the cluster", "this client was closed")
        self._callbacks.clear()
        for asking in [self._refreshing, *(each for each, _ in self._finding.values())]:
            if asking is not None:
                asking.cancel()
        await self._tasks.close(_CLOSE_SECONDS)  # before the streams, without which the watch would ask and ask
        await self._pool.close()
        await self._inner_pool.close()
        self._tell()

    # --- how ------------------------------------------------------------------------------------------------------

    async def _stream(self, pool: StreamPool, leader: PartitionLeader, timeout: float) -> Stream:
        self._check()
        if self._cache.is_outdated(leader):
            raise replaced(leader)
        self._want(leader.topic)
        try:
            stream: Stream = await self._requests.dialling(pool.get(leader.endpoints, timeout), leader)
        except PeerNotAdmitted as error:
            # Brokers admit this client. So the leader has just died, or its port belongs to another process by now.
            raise PeerUnreachable(error.peer, error.reason) from error
        return stream

    def _want(self, topic: str) -> None:
        """Keep the leaders of this topic up to date from now on."""
        if topic not in self._topics:
            self._topics = tuple(sorted((*self._topics, topic)))
        self._watch.begin(self._tasks)

    def _followed(self) -> tuple[str, ...]:
        """Return the topics to ask for; empty: all."""
        return () if self._follows_all else self._topics

    async def _ask_and_learn(self, timeout: float) -> Metadata:
        topics = self._followed()
        answer = await self._metadata(topics, timeout, self._cache.version_of(topics))
        self._learn(answer, topics)
        return answer

    async def _ask_for_topic(self, name: str, deadline: float) -> tuple[Metadata, float]:
        """Return what a broker knows of a topic, and when it was asked. Calls at the same time share one question.

        The fetchers of a thousand partitions begin in one moment, and each answer names all thousand.
        """
        while True:
            left = max(deadline - self._loop.time(), 0.0)
            if name not in self._finding:
                asking = self._loop.create_task(self._learn_topic(name, left))
                asking.add_done_callback(_was_seen)
                self._finding[name] = asking, self._loop.time()
            asking, asked_at = self._finding[name]
            # It is not cancelled with this call: others may wait for it.
            await asyncio.wait([asking], timeout=left)
            self._check()
            error = asking.exception() if asking.done() else self._questions.unreachable(left)
            if error is None:
                return asking.result(), asked_at
            if not isinstance(error, ClusterUnreachable) or self._loop.time() >= deadline:
                raise type(error)(*error.args)  # one of its own for each that waits

    async def _learn_topic(self, name: str, timeout: float) -> Metadata:
        try:
            answer = await self._metadata((name,), timeout)
            self._learn(answer, (name,))
        finally:
            del self._finding[name]
        return answer

    async def _metadata(self, topics: tuple[str, ...], timeout: float, known: int = NOTHING_KNOWN) -> Metadata:
        """Return the metadata of one broker; of topics that are known as of a version, what has changed since."""
        return await self._questions.ask(GetMetadata(topics, NOTHING_KNOWN, 0, known), Metadata, timeout)

    async def _up_to_date(self, topics: tuple[str, ...], timeout: float) -> Metadata:
        """Return metadata that are at least as new as those that this client has seen."""
        deadline = self._loop.time() + timeout
        newest = self._cache.version
        question = GetMetadata(topics, newest - 1, round(1000 * _LOOK_AGAIN_SECONDS))
        while True:
            answer = await self._questions.ask(question, Metadata, max(deadline - self._loop.time(), 0.0))
            if answer.version >= newest:
                return answer
            if self._loop.time() + _LOOK_AGAIN_SECONDS >= deadline:
                raise self._questions.unreachable(timeout, _KNOW_LESS)

    def _learn(self, answer: Metadata, asked: tuple[str, ...]) -> None:
        is_newer = answer.version > self._cache.version
        if self._follows_all and not asked:
            is_change = self._cache.learn_all(answer)
        else:
            is_change = self._cache.learn(answer, asked or self._topics)
        if is_newer:
            is_change |= self._brokers.learn(answer.brokers)
        if is_change:
            self._requests.give_up(self._cache.is_outdated)
            wanted = self._cache.endpoints() | set(self._brokers.all()) | self._watch.asked()
            self._pool.retain(wanted)
            self._inner_pool.retain(wanted)
            for callback in list(self._callbacks.values()):
                callback()
        if is_newer:
            self._tell()

    def _tell(self) -> None:
        news, self._is_news = self._is_news, self._loop.create_future()
        news.set_result(None)

    def _broke(self, error: BaseException) -> None:
        _log.critical("The link to the cluster is over: %r", error, exc_info=error)
        self._broken = error
        self._tell()

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken


def _was_seen(task: asyncio.Task[Metadata]) -> None:
    """Look at its failure, so that asyncio does not log it where all callers have gone."""
    if not task.cancelled():
        task.exception()


def _is_stranger(asked: PartitionLeader, error: RaylogError | None) -> bool:
    is_other_coordinator = isinstance(asked, CoordinatorAddress) and isinstance(error, UnknownPartition)
    return is_other_coordinator or isinstance(error, MessageUnknown)
