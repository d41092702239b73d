"""The controller's side of the metadata log (rule 17).

    blank ──recover, form──► writing ──a higher epoch is heard of──► fenced
                                └──────close──► stopped

What must stay true:
- One writer has one epoch. Nothing is committed under it before a batch that it wrote itself, the first of its epoch.
- Changes are committed in the order of their appends, and a change is committed as a whole or not at all.
- Once fenced or stopped it commits nothing more. The outcome of changes that were not committed is unknown: they may be
  in the log that the next controller adopts.
- Memory is bounded: by the log since the last snapshot, and by `max_uncommitted_bytes` where no majority answers.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.metadata_log.directory_marks import marks_in, recorded_marks
from raylog.actors.metadata_log.feed import BrokerFeed
from raylog.actors.metadata_log.promises import Adopted, PromiseRounds, Reachable, brokers_text, voters_text
from raylog.actors.metadata_log.rules.quorum import CommitRule, is_snapshot_due, next_voters
from raylog.actors.metadata_log.rules.tail import (
    LogTail,
    MetadataSnapshot,
    StoredBatch,
    encode_change,
    encode_state,
    voters_in,
)
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voter, Voters
from raylog.actors.protocol.metadata_records import CommittedBatch
from raylog.config import MIB
from raylog.errors import (
    ControllerFenced,
    ControllerStopped,
    MetadataQuorumUnavailable,
    RaylogError,
    TooManyBytesInFlight,
    VotersNotChanged,
)

_log = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS: Final = 0.05


class Recovered(NamedTuple):
    """All that is committed: the state as records, and the batches after it, ControllerStarted in the last of them.

    Where there is a state, its first record is the Voters of its version.
    """

    state: tuple[Message, ...]
    state_version: int
    batches: tuple[CommittedBatch, ...]
    epoch: int
    version: int


class _Uncommitted(NamedTuple):
    end_offset: int
    size: int
    done: asyncio.Future[int]


class MetadataWriter:
    """Writes the metadata log under one controller epoch. Made for one `recover` or one `form`."""

    def __init__(self, env: Environment, controller: str, *, max_uncommitted_bytes: int = 64 * MIB) -> None:
        # Its *result* says why, once a higher epoch is known. Then all is over.
        self.fenced: asyncio.Future[ControllerFenced] = asyncio.get_running_loop().create_future()
        self._env = env
        self._controller = controller
        self._limit = max_uncommitted_bytes
        self._ended: RaylogError | None = ControllerStopped("The controller has not begun.")
        self._epoch = -1
        self._tail = LogTail()
        self._rule = CommitRule((), 0, 0)
        self._marks: dict[Voter, int] = {}
        self._feeds: dict[int, BrokerFeed] = {}
        self._uncommitted: deque[_Uncommitted] = deque()
        self._uncommitted_bytes = 0
        self._changing_voters = asyncio.Lock()

    # --- what it knows --------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def version(self) -> int:
        """The offset after the last committed batch."""
        return self._rule.committed

    @property
    def voters(self) -> tuple[Voter, ...]:
        """The voters in force, which may not be committed yet."""
        return self._tail.voters

    @property
    def voting_brokers(self) -> tuple[int, ...]:
        """The numbers of the voters in force."""
        return tuple(broker_id for broker_id, _ in self._tail.voters)

    @property
    def tail(self) -> LogTail:
        """The log in memory, for its feeds."""
        return self._tail

    @property
    def marks(self) -> Mapping[Voter, int]:
        """The marks of directories that are in the log, for its feeds; never changed, but replaced."""
        return self._marks

    @property
    def snapshot_due(self) -> bool:
        """Whether enough has been written since the last snapshot for another to be worth its while."""
        return is_snapshot_due(self._tail.size_bytes, len(self._tail.snapshot.data))

    def connected(self) -> frozenset[Voter]:
        """Brokers that are being fed and have answered, with their directories; voters or not."""
        return frozenset(feed.member for feed in self._feeds.values() if feed.member is not None)

    def obeyed_at(self) -> float:
        """Return the last time at which voters were asked of whom a majority has obeyed this controller since.

        It is a time of the loop; -inf: there was none yet. No controller with a higher epoch had its promises then.
        """
        times = sorted((feed.obeyed_at for feed in self._voting_feeds()), reverse=True)
        others = len(self.voters) // 2  # that make a majority with one more
        return times[others] if len(times) > others else -math.inf

    def ask_whether_obeyed(self) -> None:
        """Ask the voters, so that `obeyed_at` is later in a moment."""
        for feed in self._voting_feeds():
            feed.ask_whether_obeyed()

    def _voting_feeds(self) -> list[BrokerFeed]:
        return [feed for feed in self._feeds.values() if feed.member in self.voters]

    # --- beginning ------------------------------------------------------------------------------------------------

    async def recover(self, reachable: Reachable, *, timeout: float = 30.0) -> Recovered:
        """Take over, feeding all who are reachable.

        MetadataQuorumUnavailable after `timeout`; ControllerFenced where another controller was quicker.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        adopted = await PromiseRounds(self._env, self._controller, reachable, timeout).adopt()
        return await self._begin(adopted, [ControllerStarted(adopted.epoch)], reachable, deadline)

    async def form(
        self, reachable: Reachable, voters: Sequence[int], records: Sequence[Message], *, timeout: float = 30.0
    ) -> Recovered:
        """Begin a new log with these voters and records, in one batch.

        All voters have to be reachable, and blank like all others who are: else MetadataNotBlank, and nothing is
        written. MetadataQuorumUnavailable after `timeout`; where the first batch was sent already, `recover` goes on
        with it.
        """
        _check_no_voters(records)
        deadline = asyncio.get_running_loop().time() + timeout
        voters = tuple(sorted(set(voters)))
        adopted = await PromiseRounds(self._env, self._controller, reachable, timeout).claim(voters)
        first = [Voters(adopted.voters), ControllerStarted(adopted.epoch), *records]
        return await self._begin(adopted, first, reachable, deadline)

    async def _begin(
        self, adopted: Adopted, first: Sequence[Message], reachable: Reachable, deadline: float
    ) -> Recovered:
        self._epoch, self._tail, _ = adopted
        self._rule = CommitRule(self._tail.voters, self._tail.start_offset, self._tail.end_offset)
        self._marks = marks_in(self._tail)
        self._ended = None
        committed = self._append(first)
        await self._commit_first(committed, reachable, deadline)
        snapshot = self._tail.snapshot
        batches = tuple(batch.committed for batch in self._tail.batches_from(snapshot.version))
        _log.info("%s begins at epoch %d, version %d.", self._controller, self._epoch, self.version)
        return Recovered(snapshot.records, snapshot.version, batches, self._epoch, self.version)

    async def _commit_first(self, committed: asyncio.Future[int], reachable: Reachable, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not committed.done():
            if loop.time() >= deadline:
                answered = brokers_text(each for each, feed in self._feeds.items() if feed.agreed_end)
                voters = voters_text(self.voters)
                await self.close()
                raise MetadataQuorumUnavailable(voters, answered, int((loop.time() - began) * 1000))
            for broker_id, stream in reachable():
                self.connect(broker_id, stream)
            await asyncio.wait({committed}, timeout=_LOOK_AGAIN_SECONDS)
        committed.result()

    # --- changes --------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[Message]) -> asyncio.Future[int]:
        """Append one atomic change. The result is the version after it, once it is committed; several may be under way.

        ControllerFenced and ControllerStopped: outcome unknown. Raises TooManyBytesInFlight, and nothing was written.
        """
        _check_no_voters(records)
        return self._append(records)

    def _append(self, records: Sequence[Message]) -> asyncio.Future[int]:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if self._ended is not None:
            _fail(done, self._ended)
            return done
        base_offset = self._tail.end_offset
        data = encode_change(records, base_offset, self._epoch, self._env.wall_ms())
        if self._uncommitted and self._uncommitted_bytes + len(data) > self._limit:
            raise TooManyBytesInFlight(len(data), self._uncommitted_bytes, self._limit)
        end_offset = base_offset + len(records)
        self._tail.append([StoredBatch(base_offset, end_offset, self._epoch, tuple(records), data)])
        if (voters := voters_in(records)) is not None:
            self._rule.change_voters(voters, end_offset)
        if marks := recorded_marks(records):
            self._marks = {**self._marks, **marks}
        self._uncommitted.append(_Uncommitted(end_offset, len(data), done))
        self._uncommitted_bytes += len(data)
        self._wake_feeds()
        return done

    def snapshot(self, state: Sequence[Message], version: int) -> None:
        """Let `state`, the fold of all below the committed `version`, stand for the log before it, here and at brokers.

        Records of this log's own (Voters, ControllerStarted) are left out of it; the voters of that version are added.
        """
        epoch = self._tail.epoch_before(version)
        if epoch is None or not self._tail.start_offset < version <= self.version:
            raise ValueError(f"No snapshot at {version}: {self._tail.start_offset} to {self.version} is committed.")
        own = [record for record in state if not isinstance(record, (Voters, ControllerStarted))]
        records = (Voters(self._tail.voters_at(version)), *own)
        data = encode_state(records, epoch, self._env.wall_ms())
        self._tail.replace_start(MetadataSnapshot(version, epoch, records, data))
        self._wake_feeds()

    async def change_voters(self, voters: Sequence[Voter], *, timeout: float = 30.0) -> None:
        """Change the voters step by step to this set, lost ones included.

        VotersNotChanged where it is not reached in time: steps that are done stay done. ControllerFenced.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        wanted = tuple(sorted(set(voters)))
        if not wanted:
            raise VotersNotChanged(voters_text(self.voters), "none", "somebody has to keep the log")
        async with self._changing_voters:
            version = self.version
            while self.version < self._tail.voters_offset or self.voters != wanted:
                before, version = version, self.version
                await self._step_towards(wanted, self._holding(before), deadline)

    async def _step_towards(self, wanted: tuple[Voter, ...], ready: frozenset[Voter], deadline: float) -> None:
        if self._ended is not None:
            raise self._ended
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            reason = f"{voters_text(set(wanted) - ready) or 'none'} of these not up to date, or no majority left"
            raise VotersNotChanged(voters_text(self.voters), voters_text(wanted), reason)
        step = None
        if self.version >= self._tail.voters_offset:  # the last step is committed: the next may begin
            step = next_voters(self.voters, wanted, ready)
        if step is None:
            await asyncio.wait({self.fenced}, timeout=min(left, _LOOK_AGAIN_SECONDS))
            return
        _log.info("Voters of the metadata log: %s instead of %s.", step, self.voters)
        await asyncio.wait({self._append([Voters(step)])}, timeout=left)

    def _holding(self, version: int) -> frozenset[Voter]:
        """Brokers that hold all below `version`, as far as their present streams have told."""
        return frozenset(
            feed.member
            for feed in self._feeds.values()
            if feed.member is not None and feed.agreed_end >= version and not feed.stream.closed.done()
        )

    # --- brokers --------------------------------------------------------------------------------------------------

    def connect(self, broker_id: int, stream: Stream) -> None:
        """Feed this broker over this stream, instead of any earlier one, until the stream ends."""
        feed = self._feeds.get(broker_id)
        if self._ended is not None or stream.closed.done() or (feed is not None and feed.stream is stream):
            return
        self.disconnect(broker_id)
        self._rule.forget(broker_id)
        self._feeds[broker_id] = BrokerFeed(broker_id, stream, self, self._env.random)

    def disconnect(self, broker_id: int) -> None:
        """Feed it no more."""
        feed = self._feeds.pop(broker_id, None)
        if feed is not None:
            feed.stop()

    def synced(self, member: Voter, end_offset: int) -> None:
        """Take note, from a feed, that a broker holds everything below `end_offset`."""
        if self._ended is None and self._rule.synced(member, end_offset):
            while self._uncommitted and self._uncommitted[0].end_offset <= self.version:
                committed = self._uncommitted.popleft()
                self._uncommitted_bytes -= committed.size
                if not committed.done.done():
                    committed.done.set_result(committed.end_offset)
            self._wake_feeds()

    def feed_ended(self, feed: BrokerFeed) -> None:
        """Forget a feed that has ended."""
        if self._feeds.get(feed.broker_id) is feed:
            del self._feeds[feed.broker_id]

    def _wake_feeds(self) -> None:
        for feed in self._feeds.values():
            feed.wake()

    # --- ending ---------------------------------------------------------------------------------------------------

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        ends = [each.end_offset for each in self._uncommitted]
        if self._ended is not None:
            if ends:
                yield f"it has ended, and the changes up to {ends} wait to be committed"
            return
        if not all(before < after for before, after in pairwise([self.version, *ends])):
            yield f"committed up to {self.version}; what waits ends at {ends}"
        if max(self.version, *ends, 0) > self._tail.end_offset:
            yield f"committed up to {self.version}, waiting up to {ends}; the log ends at {self._tail.end_offset}"
        if self._uncommitted_bytes != sum(each.size for each in self._uncommitted):
            yield f"{self._uncommitted_bytes} bytes are counted as uncommitted"

    def fence(self, epoch: int) -> None:
        """Stop: a feed has heard that this higher epoch was promised."""
        if self._ended is None:
            error = ControllerFenced(self._epoch, epoch)
            _log.warning("%s stops: %s", self._controller, error)
            self.fenced.set_result(error)
            self._end(error)

    async def close(self) -> None:
        """Stop. What is not committed fails with ControllerStopped."""
        feeds = list(self._feeds.values())
        if self._ended is None:
            self._end(ControllerStopped(f"{self._controller} was stopped."))
        for feed in feeds:
            await feed.stopped()

    def _end(self, error: RaylogError) -> None:
        self._ended = error
        for broker_id in list(self._feeds):
            self.disconnect(broker_id)
        while self._uncommitted:
            _fail(self._uncommitted.popleft().done, error)
        self._uncommitted_bytes = 0


def _check_no_voters(records: Sequence[Message]) -> None:
    if voters_in(records) is not None:
        raise ValueError("Voters change by change_voters, one at a time.")


def _fail(future: asyncio.Future[int], error: RaylogError) -> None:
    """Fail a change that waits. `fenced` tells the reason as well, so it may be that nobody waits here."""
    if not future.done():
        future.set_exception(error)
        future.exception()
