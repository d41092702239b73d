"""The half of a consumer's group that belongs to whoever polls: what is read, the listener, and when to commit.

    GroupClient (loop) ──events──► follow() ──► SubscriptionState, listener, commits ──orders──► GroupClient

What must stay true:
- What is committed was handed out before this poll began: the program is through with it, or has said so itself.
- A partition that is asked back is told to the listener, read no more, and committed (with `enable_auto_commit`),
  before the group hears that it is free. A listener that raises stops none of that.
- Partitions that stay are never paused, whatever moves.
- A producer that commits offsets in its transaction speaks as the member that its program was handed the records as:
  a place that was lost and taken again since, before the program has heard of it, gives no right to these (rule 24).
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from raylog.api.consumer.group.group_client import GroupClient
from raylog.api.consumer.group.group_offsets import Speaker
from raylog.api.consumer.group.rebalance_listener import ListensToRebalances
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.group_events import AskedBack, Committed, Ended, Granted, GroupEvent, Taken
from raylog.api.consumer.rules.positions import UNKNOWN
from raylog.api.consumer.subscription_state import SubscriptionState
from raylog.errors import ConflictingSubscription, ListenerFailed, RaylogError
from raylog.groups.records.messages import JOINING, NO_EPOCH
from raylog.groups.records.settings import check_group_id
from raylog.groups.records.topic_patterns import check_pattern

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object]
_SHOWN: Final = 5
_NOBODY: Final = ("", JOINING)

_log = logging.getLogger(__name__)


class GroupSubscription:
    """The group of one consumer with a `group_id`. `begin` is called once, with what lives on the loop."""

    def __init__(
        self,
        runtime: ClientRuntime,
        options: ConsumerOptions,
        subscriptions: SubscriptionState,
        wake: Callable[[], None],
    ) -> None:
        assert options.group_id is not None
        check_group_id(options.group_id)
        self.group = options.group_id
        self.topics: frozenset[str] = frozenset()
        self.pattern = ""
        self._runtime = runtime
        self._options = options
        self._subscriptions = subscriptions
        self._wake = wake
        self._client: GroupClient | None = None
        self.forget: Callable[[], None] = _nothing
        self._listener: ListensToRebalances | None = None
        self._events: deque[GroupEvent] = deque()
        self._callbacks: deque[Callable[[], object]] = deque()  # of commits that are done
        self._committed: dict[TopicPartition, int] = {}  # what this consumer has committed last
        self._reads_as = _NOBODY  # member id, and the epoch of its last grant
        self._polled_at = time.monotonic()
        self._commit_at = time.monotonic() + options.auto_commit_interval_ms / 1000
        self._is_following = False
        self._ended: RaylogError | None = None

    def begin(self, client: GroupClient, forget: Callable[[], None]) -> None:
        """`forget`: let the end of the process do nothing about it any more."""
        self._client = client
        self.forget = forget

    @property
    def client(self) -> GroupClient:
        assert self._client is not None
        return self._client

    # --- from the loop, and any thread ----------------------------------------------------------------------------

    def since_poll(self) -> float:
        return time.monotonic() - self._polled_at

    def put(self, event: GroupEvent) -> None:
        self._events.append(event)
        self._interrupt()

    def linger(self) -> None:
        """The program has not polled for a while: what it iterates over ends soon, so that it does."""
        self._subscriptions.collector.cut()

    def _interrupt(self) -> None:
        self._subscriptions.collector.cut()
        self._wake()

    # --- what is read ---------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics or self.pattern)

    def subscribe(self, topics: Iterable[str], pattern: str, listener: ListensToRebalances | None) -> None:
        """Raises InvalidSubscription, ConflictingSubscription."""
        check_pattern(self.group, pattern)
        if self._subscriptions.positions and not self.is_subscribed:
            raise ConflictingSubscription("partitions were assigned, and now topics are named")
        self.topics, self.pattern, self._listener = frozenset(topics), pattern, listener
        self._polled_at, self._ended = time.monotonic(), None
        names = tuple(sorted(self.topics))
        self._order(lambda client: client.join(names, pattern))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without being a member: from where the group has left them."""
        if self.is_subscribed:
            raise ConflictingSubscription("topics were named, and now partitions are assigned")
        wanted = list(partitions)
        self._subscriptions.remove(set(self._subscriptions.positions) - set(wanted))
        self._locate(wanted)

    def unsubscribe(self, *, tell_listener: bool = True) -> None:
        """Commit, where that is done by itself, and leave; nobody waits for that."""
        offsets = self._to_commit_at_end()
        held = frozenset(self._subscriptions.positions) if self.is_subscribed else frozenset()
        try:
            if tell_listener:
                self._call_listener("on_partitions_revoked", held)
        finally:
            self.topics, self.pattern, self._ended = frozenset(), "", None
            self._subscriptions.remove(list(self._subscriptions.positions))
            self._events.clear()
            self._committed.clear()
            speaker, self._reads_as = self._speaker(), _NOBODY
            seconds = self._options.request_timeout_ms / 1000
            self._order(lambda client: client.start_leaving(offsets, seconds, speaker))

    def close(self, seconds: float, *, commit: bool) -> None:
        """Commit, where that is done by itself, tell the listener, leave."""
        offsets = self._to_commit_at_end() if commit else {}
        held = frozenset(self._subscriptions.positions) if self.is_subscribed else frozenset()
        self._is_following = True  # a listener that polls gets no more of it
        try:
            self._call_listener("on_partitions_revoked", held)
        finally:
            self.forget()
            self._runtime.run(self.client.close(offsets, seconds, self._speaker()), seconds + 1.0)
            self._run_callbacks()

    # --- with each poll -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether `follow` has something to do that may take time. To be asked with each poll in its place."""
        self._note_poll()
        return bool(self._events or self._callbacks) or self._is_commit_due()

    def follow(self) -> None:
        """Do what the group asks for. Within a listener: only what does not call it again."""
        self._note_poll()
        if self._is_following:
            self._take_committed()
            return
        self._is_following = True
        try:
            self._run_callbacks()
            while self._events:
                self._handle(self._events.popleft())
            if self._is_commit_due():
                self._auto_commit()
        finally:
            self._is_following = False
        if self._ended is not None:
            raise self._ended

    def _note_poll(self) -> None:
        self._polled_at = time.monotonic()
        membership = self.client.membership
        if membership is not None and membership.is_idle:
            self._order(lambda client: client.nudge())

    def _handle(self, event: GroupEvent) -> None:
        if isinstance(event, Granted):
            self._granted(event)
        elif isinstance(event, AskedBack):
            self._asked_back(event)
        elif isinstance(event, Taken):
            self._taken(event.partitions)
        elif isinstance(event, Committed):
            self._begin_at(event)
        elif isinstance(event, Ended):
            self._ended = event.error

    def _granted(self, event: Granted) -> None:
        partitions = event.partitions
        self._reads_as = event.member_id, event.epoch
        _log.info("Group %s: assigned %s.", self.group, _shown(partitions))
        for partition in partitions:
            self._committed.pop(partition, None)  # others may have committed since
        self._locate(sorted(partitions))
        self._call_listener("on_partitions_assigned", partitions)

    def _asked_back(self, event: AskedBack) -> None:
        """Give partitions back. Nobody waits for the commit here: what is polled meanwhile are partitions that stay."""
        held = frozenset(each for each in event.partitions if each in self._subscriptions.positions)
        _log.info("Group %s: gives up %s.", self.group, _shown(held))
        try:
            if self._options.enable_auto_commit:
                self._commit_before_letting_go(held)
            self._call_listener("on_partitions_revoked", held)
        finally:
            self._let_go(held)
            self._order(lambda client: client.gave_up(event.number))

    def _taken(self, partitions: frozenset[TopicPartition]) -> None:
        held = frozenset(each for each in partitions if each in self._subscriptions.positions)
        self._reads_as = _NOBODY
        _log.warning("Group %s: lost %s.", self.group, _shown(held))
        self._let_go(held)
        self._call_listener("on_partitions_lost", held)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._subscriptions.remove(partitions)
        for partition in partitions:
            self._committed.pop(partition, None)

    def _locate(self, partitions: Collection[TopicPartition]) -> None:
        generations = self._subscriptions.add(partitions)
        if generations:
            self._order(lambda client: client.locate(generations))

    def _begin_at(self, event: Committed) -> None:
        for partition, (generation, offset) in event.offsets.items():
            if offset is None:
                self._subscriptions.begin(partition, generation, UNKNOWN, -1)
            else:
                self._subscriptions.begin(partition, generation, offset.offset, offset.leader_epoch)

    def _take_committed(self) -> None:
        """A listener may ask for positions, and these come as events too."""
        for event in [each for each in self._events if isinstance(each, Committed)]:
            self._events.remove(event)
            self._begin_at(event)

    def _call_listener(self, call: str, partitions: frozenset[TopicPartition]) -> None:
        """Call the listener, if it has this method. What is lost counts as revoked for a listener that does not hear of
        losses. ListenerFailed.
        """
        if not partitions or self._listener is None:
            return
        method = getattr(self._listener, call, None)
        if method is None and call == "on_partitions_lost":
            method = getattr(self._listener, "on_partitions_revoked", None)
        if method is None:
            return
        began = time.monotonic()
        try:
            method(set(partitions))
        except Exception as error:
            _, member, epoch, _ = self.metadata()
            took_ms = round(1000 * (time.monotonic() - began))
            raise ListenerFailed(self.group, member, epoch, call, _shown(partitions), took_ms, repr(error)) from error

    # --- committing -----------------------------------------------------------------------------------------------

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset up to which each partition was read."""
        collector = self._subscriptions.collector
        found = {}
        for partition in self._subscriptions.positions:
            offset = collector.position(partition)
            if offset != UNKNOWN:
                found[partition] = OffsetAndMetadata(offset, "", collector.epoch(partition))
        return found

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, seconds: float) -> None:
        given = self.consumed() if offsets is None else dict(offsets)
        if given:
            self._runtime.run(self.client.offsets.commit(given, seconds, self._speaker()))
            self._note_committed(given)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> concurrent.futures.Future[None]:
        given = self.consumed() if offsets is None else dict(offsets)
        seconds = self._options.request_timeout_ms / 1000
        future = self._runtime.submit(self.client.offsets.commit(given, seconds, self._speaker()))
        future.add_done_callback(lambda done: self._commit_done(done, given, callback))
        return future

    def _commit_done(
        self,
        done: concurrent.futures.Future[None],
        given: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
    ) -> None:
        """Take the outcome of a commit, on the loop."""
        error = RaylogError("it was cancelled") if done.cancelled() else done.exception()
        if error is None:
            self._note_committed(given)
        if callback is not None:
            self._callbacks.append(lambda: callback(given, error))
            self._wake()

    def _run_callbacks(self) -> None:
        while self._callbacks:
            self._callbacks.popleft()()

    def _speaker(self) -> Speaker | None:
        """Return the member whose commits these are: what waits its turn must not be taken for what is read after a
        loss.
        """
        return self._reads_as if self._reads_as[0] else None

    def _note_committed(self, given: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update({each: offset.offset for each, offset in given.items()})

    def _unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: at for each, at in self.consumed().items() if self._committed.get(each) != at.offset}

    def _is_commit_due(self) -> bool:
        return self._options.enable_auto_commit and time.monotonic() >= self._commit_at

    def _auto_commit(self) -> None:
        self._commit_at = time.monotonic() + self._options.auto_commit_interval_ms / 1000
        if unsaved := self._unsaved():
            self.commit_async(unsaved, self._auto_commit_done)

    def _auto_commit_done(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Any) -> None:
        if error is not None:
            _log.warning("Group %s: %s is not committed: %s", self.group, _shown(offsets), error)

    def _commit_before_letting_go(self, partitions: frozenset[TopicPartition]) -> None:
        unsaved = {each: at for each, at in self._unsaved().items() if each in partitions}
        if unsaved:
            self.commit_async(unsaved, self._let_go_without)

    def _let_go_without(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Any) -> None:
        if error is not None:
            _log.warning("Group %s: gives %s up without a commit: %s", self.group, _shown(offsets), error)

    def _to_commit_at_end(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._unsaved() if self._options.enable_auto_commit else {}

    def committed(
        self, partitions: Iterable[TopicPartition], seconds: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._runtime.run(self.client.offsets.committed(partitions, seconds))

    def metadata(self) -> GroupMetadata:
        membership = self.client.membership
        instance = self._options.group_instance_id or ""
        if membership is None:
            return GroupMetadata(self.group, "", NO_EPOCH, instance)
        member_id, epoch = self._reads_as
        if not membership.member.is_member or membership.member.member_id != member_id:
            return GroupMetadata(self.group, "", JOINING, instance)
        return GroupMetadata(self.group, member_id, epoch, instance)

    def _order(self, order: Callable[[GroupClient], object]) -> None:
        self._runtime.loop.call_soon_threadsafe(order, self.client)


def _nothing() -> None:
    """Do nothing: the call before `begin`."""


def _shown(partitions: Collection[TopicPartition]) -> str:
    names = sorted(map(str, partitions))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "nothing"
