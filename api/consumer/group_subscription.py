"""The half of a consumer's group that belongs to the thread that polls: the group's events, and what they change.

    GroupClient (loop) ──events──► follow() ──► SubscriptionState, listener, GroupCommits ──orders──► GroupClient

What must stay true:
- A partition that is asked back is told to the listener, read no more, and committed (with `enable_auto_commit`),
  before the group hears that it is free. A listener that raises stops none of that.
- Partitions that stay are never paused, whatever moves.
- A producer that commits offsets in its transaction speaks as the member that its program was handed the records as:
  a place that was lost and taken again since, before the program has heard of it, gives no right to these (rule 24).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import GroupMetadata, TopicPartition
from raylog.api.consumer.group.group_client import GroupClient
from raylog.api.consumer.group.group_offsets import Speaker
from raylog.api.consumer.group.rebalance_listener import ListensToRebalances
from raylog.api.consumer.group_commits import GroupCommits, shown
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.group_events import AskedBack, Committed, Ended, Granted, GroupEvent, Taken
from raylog.api.consumer.rules.positions import UNKNOWN
from raylog.api.consumer.subscription_state import SubscriptionState
from raylog.errors import ConflictingSubscription, ListenerFailed, RaylogError
from raylog.groups.records.messages import JOINING, NO_EPOCH
from raylog.groups.records.topic_patterns import check_pattern

_NOBODY: Final = ("", JOINING)

_log = logging.getLogger(__name__)


class GroupInbox:
    """Events for the thread that polls, and when it polled last. `wake` ends its wait. Any thread may put events."""

    def __init__(self, subscriptions: SubscriptionState, wake: Callable[[], None]) -> None:
        self.events: deque[GroupEvent] = deque()
        self.wake = wake
        self._subscriptions = subscriptions
        self._polled_at = time.monotonic()

    def note_poll(self) -> None:
        """The program polls now."""
        self._polled_at = time.monotonic()

    def since_poll(self) -> float:
        """The seconds since the program polled last."""
        return time.monotonic() - self._polled_at

    def put(self, event: GroupEvent) -> None:
        """Hand an event to the next poll, and end the present one."""
        self.events.append(event)
        self._subscriptions.collector.cut()
        self.wake()

    def linger(self) -> None:
        """End what the program iterates over, so that it polls: it has not for a while."""
        self._subscriptions.collector.cut()


class GroupSubscription:
    """The subscription of one consumer with a `group_id`. `forget`: let the end of the process leave it alone."""

    def __init__(
        self,
        runtime: ClientRuntime,
        options: ConsumerOptions,
        subscriptions: SubscriptionState,
        inbox: GroupInbox,
        client: GroupClient,
        forget: Callable[[], None],
    ) -> None:
        assert options.group_id is not None
        self.group = options.group_id
        self.topics: frozenset[str] = frozenset()
        self.pattern = ""
        self.client = client
        self.forget = forget
        self.commits = GroupCommits(runtime, options, subscriptions, client.offsets, self._speaker, inbox.wake)
        self._runtime = runtime
        self._options = options
        self._subscriptions = subscriptions
        self._inbox = inbox
        self._listener: ListensToRebalances | None = None
        self._reads_as = _NOBODY  # member id, and the epoch of its last grant
        self._is_following = False
        self._ended: RaylogError | None = None

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
        self._inbox.note_poll()
        self._ended = None
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
        """Commit, with `enable_auto_commit`, and leave; nothing is waited for."""
        offsets = self.commits.at_end()
        held = frozenset(self._subscriptions.positions) if self.is_subscribed else frozenset()
        try:
            if tell_listener:
                self._call_listener("on_partitions_revoked", held)
        finally:
            self.topics, self.pattern, self._ended = frozenset(), "", None
            self._subscriptions.remove(list(self._subscriptions.positions))
            self._inbox.events.clear()
            self.commits.forget_all()
            speaker, self._reads_as = self._speaker(), _NOBODY
            seconds = self._options.request_timeout_ms / 1000
            self._order(lambda client: client.start_leaving(offsets, seconds, speaker))

    def close(self, seconds: float, *, commit: bool) -> None:
        """Commit, with `enable_auto_commit`, call the listener, leave."""
        offsets = self.commits.at_end() if commit else {}
        held = frozenset(self._subscriptions.positions) if self.is_subscribed else frozenset()
        self._is_following = True  # a listener that polls gets no more of it
        try:
            self._call_listener("on_partitions_revoked", held)
        finally:
            self.forget()
            self._runtime.run(self.client.close(offsets, seconds, self._speaker()), seconds + 1.0)
            self.commits.run_callbacks()

    # --- with each poll -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether `follow` has something to do that may take time. To be asked with each poll in its place."""
        self._note_poll()
        return bool(self._inbox.events) or self.commits.has_news

    def follow(self) -> None:
        """Do what the group asks for. Within a listener: only what does not call it again."""
        self._note_poll()
        if self._is_following:
            self._take_committed()
            return
        self._is_following = True
        try:
            self.commits.run_callbacks()
            while self._inbox.events:
                self._handle(self._inbox.events.popleft())
            self.commits.commit_if_due()
        finally:
            self._is_following = False
        if self._ended is not None:
            raise self._ended

    def _note_poll(self) -> None:
        self._inbox.note_poll()
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
        _log.info("Group %s: assigned %s.", self.group, shown(partitions))
        self.commits.forget(partitions)
        self._locate(sorted(partitions))
        self._call_listener("on_partitions_assigned", partitions)

    def _asked_back(self, event: AskedBack) -> None:
        """Give partitions back. Nobody waits for the commit here: what is polled meanwhile are partitions that stay."""
        held = frozenset(each for each in event.partitions if each in self._subscriptions.positions)
        _log.info("Group %s: gives up %s.", self.group, shown(held))
        try:
            self.commits.before_letting_go(held)
            self._call_listener("on_partitions_revoked", held)
        finally:
            self._let_go(held)
            self._order(lambda client: client.gave_up(event.number))

    def _taken(self, partitions: frozenset[TopicPartition]) -> None:
        held = frozenset(each for each in partitions if each in self._subscriptions.positions)
        self._reads_as = _NOBODY
        _log.warning("Group %s: lost %s.", self.group, shown(held))
        self._let_go(held)
        self._call_listener("on_partitions_lost", held)

    def _let_go(self, partitions: frozenset[TopicPartition]) -> None:
        self._subscriptions.remove(partitions)
        self.commits.forget(partitions)

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
        events = self._inbox.events
        for event in [each for each in events if isinstance(each, Committed)]:
            events.remove(event)
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
            raise ListenerFailed(self.group, member, epoch, call, shown(partitions), took_ms, repr(error)) from error

    # --- as which member ------------------------------------------------------------------------------------------

    def _speaker(self) -> Speaker | None:
        """The member that the program was handed its records as; None: it is none."""
        return self._reads_as if self._reads_as[0] else None

    def metadata(self) -> GroupMetadata:
        """The place in the group that a transaction commits offsets by."""
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
