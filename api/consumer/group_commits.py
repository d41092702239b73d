"""Commits of a consumer's positions to its group: as the program asks, by themselves, and when partitions go.

    Consumer.commit, a poll, close ──► GroupCommits ──► GroupOffsets (on the client loop) ──► callbacks, in a later poll

What must stay true:
- What is committed was handed out before this poll began: the program is through with it, or has said so itself.
- A commit speaks as the member that the program was handed its records as. So what waits its turn is not taken for what
  is read after a loss.
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer.group.group_offsets import GroupOffsets, Speaker
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.positions import UNKNOWN
from raylog.api.consumer.subscription_state import SubscriptionState
from raylog.errors import RaylogError

CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], Any], object]
_SHOWN: Final = 5

_log = logging.getLogger(__name__)


class GroupCommits:
    """The commits of one consumer. `speaker`: the member that it reads as; `wake` ends the wait of its poll."""

    def __init__(
        self,
        runtime: ClientRuntime,
        options: ConsumerOptions,
        subscriptions: SubscriptionState,
        offsets: GroupOffsets,
        speaker: Callable[[], Speaker | None],
        wake: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._speaker = speaker
        self._wake = wake
        self._callbacks: deque[Callable[[], object]] = deque()  # of commits that are done
        self._committed: dict[TopicPartition, int] = {}  # what this consumer has committed last
        self._commit_at = time.monotonic() + options.auto_commit_interval_ms / 1000

    # --- as the program asks --------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, seconds: float) -> None:
        """Commit these, or all positions, and wait until the group has them."""
        given = self._consumed() if offsets is None else dict(offsets)
        if given:
            self._runtime.run(self._offsets.commit(given, seconds, self._speaker()))
            self._note_committed(given)

    def commit_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> concurrent.futures.Future[None]:
        """Commit these, or all positions, without waiting. A later poll calls `callback`."""
        given = self._consumed() if offsets is None else dict(offsets)
        seconds = self._options.request_timeout_ms / 1000
        future = self._runtime.submit(self._offsets.commit(given, seconds, self._speaker()))
        future.add_done_callback(lambda done: self._commit_done(done, given, callback))
        return future

    def committed(
        self, partitions: Iterable[TopicPartition], seconds: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offsets that the group has committed last for these; None: there is none."""
        return self._runtime.run(self._offsets.committed(partitions, seconds))

    # --- with each poll -------------------------------------------------------------------------------------------

    @property
    def has_news(self) -> bool:
        """Whether `run_callbacks` or `commit_if_due` has something to do."""
        return bool(self._callbacks) or self._is_due()

    def run_callbacks(self) -> None:
        """Call those of commits that are done."""
        while self._callbacks:
            self._callbacks.popleft()()

    def commit_if_due(self) -> None:
        """Commit what is not committed, with `enable_auto_commit` and when its interval is over."""
        if self._is_due():
            self._commit_at = time.monotonic() + self._options.auto_commit_interval_ms / 1000
            if unsaved := self._unsaved():
                self.commit_async(unsaved, self._warn("is not committed"))

    # --- when partitions go ---------------------------------------------------------------------------------------

    def before_letting_go(self, partitions: Collection[TopicPartition]) -> None:
        """Begin to commit these, with `enable_auto_commit`. Nothing is waited for."""
        if self._options.enable_auto_commit:
            unsaved = {each: at for each, at in self._unsaved().items() if each in partitions}
            if unsaved:
                self.commit_async(unsaved, self._warn("is given up without a commit"))

    def at_end(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that leaving the group has to commit: with `enable_auto_commit`, all that are not committed."""
        return self._unsaved() if self._options.enable_auto_commit else {}

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Others may commit these from now on."""
        for partition in partitions:
            self._committed.pop(partition, None)

    def forget_all(self) -> None:
        """Others may commit all of them from now on."""
        self._committed.clear()

    # --- within ---------------------------------------------------------------------------------------------------

    def _consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offset up to which the program has read each partition."""
        collector = self._subscriptions.collector
        found = {}
        for partition in self._subscriptions.positions:
            offset = collector.position(partition)
            if offset != UNKNOWN:
                found[partition] = OffsetAndMetadata(offset, "", collector.epoch(partition))
        return found

    def _unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {each: at for each, at in self._consumed().items() if self._committed.get(each) != at.offset}

    def _is_due(self) -> bool:
        return self._options.enable_auto_commit and time.monotonic() >= self._commit_at

    def _commit_done(
        self,
        done: concurrent.futures.Future[None],
        given: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
    ) -> None:
        """Note the outcome. Called on the loop."""
        error = RaylogError("it was cancelled") if done.cancelled() else done.exception()
        if error is None:
            self._note_committed(given)
        if callback is not None:
            self._callbacks.append(lambda: callback(given, error))
            self._wake()

    def _note_committed(self, given: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed.update({each: offset.offset for each, offset in given.items()})

    def _warn(self, what: str) -> CommitCallback:
        def warn(offsets: dict[TopicPartition, OffsetAndMetadata], error: Any) -> None:
            if error is not None:
                _log.warning("Group %s: %s %s: %s", self._options.group_id, shown(offsets), what, error)

        return warn


def shown(partitions: Collection[TopicPartition]) -> str:
    """The first of these, for log lines."""
    names = sorted(map(str, partitions))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "nothing"
