"""The core of both consumers: subscription and positions, the fetcher on the client loop, and the group.

    Consumer, AsyncConsumer, ParallelConsumer ──► ConsumerCore ──► SubscriptionState ──► Fetcher (on the client loop)

It is for raylog's own clients; programs use the three classes above.

What must stay true:
- Every call ends: by its result, its timeout, a typed error, `wakeup`, `close`, or Ctrl-C. None of these loses a record
  that was fetched, or moves a position.
- One thread uses a consumer at a time. Only `wakeup` and `close` may come from other threads; another thread that
  polls meanwhile is refused.

`FetchBuffer` is the way of what was fetched, from the loop of the clients to the one thread that polls.

    fetcher ──take──► pump (a task) ──► at most two takes wait here ──► first, taken, wait (the polling thread)

What must stay true:
- Nothing that was taken is lost, however a wait ends: by data, by its time-out, by `wake`, or by Ctrl-C. An item stays
  here until the polling thread has said that it is done with it; interrupted between, it meets the item once more.
- Ctrl-C leaves no lock behind: the signal is a bare lock. To enter a Condition, as an Event has one, is not one step.
- The pump stops taking while two takes wait, and goes on when one is through. Not to poll costs nothing.
- A wait ends also when the pump has ended, and why it did is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import TopicView
from raylog.api.connection.client_access import link_address, name_of
from raylog.api.connection.client_runtime import ClientRuntime, client_runtime
from raylog.api.connection.kafka_hints import keywords_wanted
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.group.group_client import GroupClient
from raylog.api.consumer.group_subscription import GroupInbox, GroupSubscription
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetched import Item
from raylog.api.consumer.subscription_state import SubscriptionState
from raylog.errors import ConsumerClosed, ConsumerInUse, GroupRequired, WakeupError
from raylog.groups.records.settings import check_group_id

_POLLING: Final = 0  # the only key of `_polling`
MOST_WAITING: Final = 2
_SLICE_SECONDS: Final = 0.5  # a signal that comes just before a thread goes to sleep does not wake it up
CLOSE_SECONDS: Final = 5.0
_T = TypeVar("_T")


class FetchBuffer:
    """A buffer, made on the loop. `listener` is called, on any thread, whenever a wait ends, for other ways to wait."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.listener: Callable[[], object] | None = None
        self._fetcher = fetcher
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[deque[Item]] = deque()
        self._signal = threading.Lock()  # free: there is something to look at
        self._is_full: asyncio.Future[None] | None = None  # the pump waits
        self._error: BaseException | None = None
        self._pump = self._loop.create_task(self._run())
        self._pump.add_done_callback(self._over)

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._arrived.append(deque(await self._fetcher.take()))
            self.wake()
            if len(self._arrived) >= MOST_WAITING:
                await self._until_popped()

    async def _until_popped(self) -> None:
        self._is_full = self._loop.create_future()
        if len(self._arrived) >= MOST_WAITING:  # looked at again: it may have been popped before it was said
            await self._is_full
        self._is_full = None

    def _go_on(self) -> None:
        if self._is_full is not None and not self._is_full.done():
            self._is_full.set_result(None)

    def _over(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled():
            self._error = pump.exception()
        self.wake()

    def close(self) -> None:
        self._pump.cancel()

    # --- on the thread that polls ---------------------------------------------------------------------------------

    def first(self) -> Item | None:
        """Return the item that has come first, or nothing; without waiting."""
        while self._arrived and not self._arrived[0]:
            self._arrived.popleft()
            self._let_pump_go_on()
        if self._arrived:
            return self._arrived[0][0]
        if self._error is not None:
            raise self._error
        self._let_pump_go_on()  # once more, for an interrupt may have come between the two steps above
        return None

    def taken(self) -> None:
        """Drop the first item, which is dealt with."""
        self._arrived[0].popleft()

    def _let_pump_go_on(self) -> None:
        if self._is_full is not None:
            self._loop.call_soon_threadsafe(self._go_on)

    def wait(self, seconds: float) -> None:
        """Wait until something has come, somebody wakes this thread, or some of the time is over."""
        self._signal.acquire(timeout=min(seconds, _SLICE_SECONDS))

    def expect(self) -> None:
        """Have whatever comes from here on end the next wait. To be called before one looks at what is there."""
        self._signal.acquire(blocking=False)

    def wake(self) -> None:
        """End a wait, also one that is about to begin. From any thread."""
        with contextlib.suppress(RuntimeError):  # it is free already
            self._signal.release()
        if self.listener is not None:
            self.listener()


class ConsumerCore:
    """The state and the steps of one consumer. Its methods raise what `Consumer`'s methods say."""

    def __init__(self, options: ConsumerOptions) -> None:
        if options.group_id is not None:
            check_group_id(options.group_id)
        self.options = options
        self.is_closed = False
        self._closing_thread: int | None = None  # its listener may still commit, from within `close`
        self._is_woken = False
        self._polling: dict[int, int] = {}  # the thread that polls
        self.timeout = options.request_timeout_ms / 1000
        self.runtime = runtime = client_runtime()
        self.link = link = open_link(runtime, options.cluster, self.timeout)
        self.fetcher, self._buffer = fetcher, buffer = runtime.run(begin_fetching(link, options), self.timeout)

        def tell(order: Callable[[Fetcher], None]) -> None:
            runtime.loop.call_soon_threadsafe(order, fetcher)

        self.subscriptions = subscriptions = SubscriptionState(options, tell)
        self.group: GroupSubscription | None = None
        self.is_group_followed = True  # by every poll; AsyncConsumer calls `follow_group` itself
        if options.group_id is not None:
            self.group = runtime.run(join_group(runtime, link, options, subscriptions, fetcher, buffer), self.timeout)
        # A consumer that is dropped without `close` must not fetch for ever.
        self._finalizer = weakref.finalize(self, let_go, runtime, fetcher, buffer, link, self.group)
        self._finalizer.atexit = False

    def describe(self, kind: str) -> str:
        """Return what `repr` of a consumer of this class shows."""
        named = self.subscriptions.subscription if self.group is None else self.group.topics
        of = [repr(name_of(self.options.cluster)), *(f"topic {topic!r}" for topic in sorted(named))]
        of += [] if self.group is None else [f"group {self.group.group!r}"]
        state = "closed" if self.is_closed else f"{len(self.subscriptions.positions)} partitions"
        return f"<{kind} of {', '.join([*of, state])}>"

    def check_open(self) -> None:
        """Raise ConsumerClosed, or that this process was forked from the consumer's."""
        if self.is_closed and self._closing_thread != threading.get_ident():
            raise ConsumerClosed
        self.runtime.check("consumer")

    def find_topic(self, name: str) -> TopicView:
        """Block until the topic's metadata is known. UnknownTopic, ClusterUnreachable."""
        return self.runtime.run(self.link.find_topic(as_topic_name(name), self.timeout))

    # --- records --------------------------------------------------------------------------------------------------

    def poll_until(self, seconds: float, get: Callable[[], _T | None]) -> _T | None:
        """Return what `get` returns, as soon as that is something; None after so many seconds. ConsumerInUse."""
        me = threading.get_ident()
        if self._polling.get(_POLLING) == me:  # a listener polls
            return self._wait_until(seconds, get)
        other = self._polling.setdefault(_POLLING, me)  # one step, so that one of two threads is first
        if other != me:
            raise ConsumerInUse(_thread_name(other), _thread_name(me))
        try:
            return self._wait_until(seconds, get)
        finally:
            self._polling.pop(_POLLING, None)

    def _wait_until(self, seconds: float, get: Callable[[], _T | None]) -> _T | None:
        deadline = time.monotonic() + seconds
        buffer = self._buffer
        while True:
            buffer.expect()
            if self._is_woken:
                self._is_woken = False
                raise WakeupError
            self.receive()
            found = get()
            if found:
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            buffer.wait(left)

    def receive(self) -> None:
        """Take in what has arrived, unless there is plenty already."""
        self.check_open()
        if self.group is not None and self.is_group_followed:
            self.group.follow()
        collector = self.subscriptions.collector
        while not collector.has_any or collector.held_bytes < self.fetcher.take_bytes:
            item = self._buffer.first()
            if item is None:
                return
            self.subscriptions.receive((item,))
            self._buffer.taken()

    def next_piece(self, seconds: float) -> Iterator[ConsumerRecord] | None:
        """Return some records to iterate over; the position follows the iteration. None: none came in that time."""
        piece = self.poll_until(seconds, self.subscriptions.collector.next_piece)
        return None if piece is None else piece.records

    def on_arrival(self, listener: Callable[[], object]) -> None:
        """Call this, on any thread, when a call that found nothing is worth repeating."""
        self._buffer.listener = listener

    # --- the group ------------------------------------------------------------------------------------------------

    def in_group(self, call: str) -> GroupSubscription:
        """Return the group. GroupRequired: this consumer has no group_id, which `call` needs."""
        self.check_open()
        if self.group is None:
            raise GroupRequired(call)
        return self.group

    def has_group_news(self) -> bool:
        """Whether `follow_group` has something to do."""
        self.check_open()
        return self.group is not None and self.group.has_news

    def follow_group(self) -> None:
        """Commit, call the listener, take and give up partitions, as the group asks."""
        if self.group is not None:
            self.group.follow()

    # --- the end --------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """End the call that waits, or the next one, with WakeupError. From any thread."""
        self._is_woken = True
        self._interrupt()

    def close(self, timeout_ms: float | None, *, commit: bool) -> None:
        """Stop fetching, commit if `commit` and auto-commit are set, and leave the group. From any thread."""
        if self.is_closed:
            return
        self.is_closed = True
        self._interrupt()
        if self._finalizer.detach() is None or not self.runtime.is_running:
            return
        seconds = CLOSE_SECONDS if timeout_ms is None else timeout_ms / 1000
        try:
            if self.group is not None:
                self._closing_thread = threading.get_ident()
                self.group.close(seconds, commit=commit)
        finally:
            self._closing_thread = None
            self.runtime.run(end_fetching(self.runtime, self.fetcher, self._buffer, self.link), seconds)

    def _interrupt(self) -> None:
        self.subscriptions.collector.cut()
        self._buffer.wake()


def _thread_name(ident: int) -> str:
    return next((each.name for each in threading.enumerate() if each.ident == ident), f"thread {ident}")


def as_topic_name(name: object) -> str:
    """Return the name. TypeError: it is not text."""
    if not isinstance(name, str):
        raise TypeError(f"A topic's name is text, and not {name!r}.")
    return name


def check_topics(topics: tuple[object, ...], client: str) -> None:
    """Raise TypeError where a positional argument of `Consumer(…)` is not a topic, but a dictionary of options, for
    example.
    """
    for topic in topics:
        if isinstance(topic, Mapping):
            raise TypeError(keywords_wanted(client))
        as_topic_name(topic)


def open_link(runtime: ClientRuntime, cluster: Any, timeout: float) -> ClusterLink:
    """Open the link to the cluster that is meant, shared with other clients of this process."""
    address = link_address(cluster, timeout)
    return runtime.run(runtime.acquire_link(address), timeout)


async def begin_fetching(link: ClusterLink, options: ConsumerOptions) -> tuple[Fetcher, FetchBuffer]:
    fetcher = Fetcher(link, options)
    return fetcher, FetchBuffer(fetcher)


async def end_fetching(runtime: ClientRuntime, fetcher: Fetcher, buffer: FetchBuffer, link: ClusterLink) -> None:
    buffer.close()
    await fetcher.close()
    await runtime.release_link(link)


async def join_group(
    runtime: ClientRuntime,
    link: ClusterLink,
    options: ConsumerOptions,
    subscriptions: SubscriptionState,
    fetcher: Fetcher,
    buffer: FetchBuffer,
) -> GroupSubscription:
    def known_end(partition: TopicPartition) -> int:
        marks = fetcher.marks.get(partition)
        return 0 if marks is None else marks.high_watermark

    inbox = GroupInbox(subscriptions, buffer.wake)
    client = GroupClient(link, options, inbox.since_poll, inbox.put, inbox.linger, known_end)
    forget = runtime.at_exit(partial(client.close, {}, CLOSE_SECONDS))
    return GroupSubscription(runtime, options, subscriptions, inbox, client, forget)


def let_go(
    runtime: ClientRuntime, fetcher: Fetcher, buffer: FetchBuffer, link: ClusterLink, group: GroupSubscription | None
) -> None:
    """End what a consumer has on the loop, on whatever thread its last reference went. It waits for nothing: this may
    be the loop itself.
    """

    async def end() -> None:
        if group is not None:
            group.forget()
            await group.client.close({}, CLOSE_SECONDS)
        await end_fetching(runtime, fetcher, buffer, link)

    if runtime.is_running:
        asyncio.run_coroutine_threadsafe(end(), runtime.loop)
