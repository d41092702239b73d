"""Looks into all processes of a simulated cluster, as no client can, for what must never be there.

- One leader per epoch: no two replicas lead the same partition in the same epoch.
- A leader's high watermark does not go back within its epoch, and no log's does as long as it is not cut (rule 3).
- The same bytes below the high watermark: whatever any replica has had below its high watermark, every other one has
  there too, now and ever after.
- The same of the metadata log: see `questions.py`. Whoever may be elected holds all that is committed: see
  `candidate_watch.py`.

It looks now and then, at each log only at what is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from zlib import crc32

from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.storage.format.record_batch import HEADER_BYTES, read_header, split_batches
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.checks.candidate_watch import CandidateWatch, GivenUp
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.checks.metadata_watch import MetadataWatch
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster

_LOOK_SECONDS = 0.2
_MAX_BYTES = 1 << 20
_ANY_EPOCH = -2


@contextmanager
def unobserved(running: RunningReplica) -> Iterator[None]:
    """Read a replica's log without its disk's faults: what the test looks at must not change what happens."""
    disk = running.process.disk
    hook, disk.on_operation = disk.on_operation, None
    try:
        yield
    finally:
        disk.on_operation = hook


@dataclass
class _Seen:
    """The part of one opening of one log that has been looked at."""

    offset: int
    cuts: tuple[str, int]
    high_watermark: int = 0


@dataclass
class Watcher:
    """`forgiven`: partitions of which more was lost than was promised to survive."""

    cluster: SimulatedCluster
    forgiven: set[tuple[str, int]] = field(default_factory=set)
    is_rotten: Callable[[RunningReplica], bool] = lambda _: False  # what is in its log is not what was written
    _leaders: dict[tuple[bytes, int, int], tuple[int, int]] = field(default_factory=dict)
    _high_watermarks: dict[tuple[bytes, int, int], int] = field(default_factory=dict)
    _committed: dict[tuple[str, int], dict[int, tuple[int, int]]] = field(default_factory=dict)
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _given_up: GivenUp = field(default_factory=GivenUp)
    _versions: dict[str, tuple[int, MetadataFold]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._metadata = MetadataWatch(self.cluster)
        self._candidates = CandidateWatch(self.cluster, self.forgiven)

    def begin(self) -> None:
        self._look_again()

    def _look_again(self) -> None:
        if not self.cluster.is_over:
            self.look()
            self.cluster.world.after(_LOOK_SECONDS, self._look_again)

    def look(self) -> None:
        self._metadata.look()
        self._candidates.look()
        self._look_at_states()
        for running in self.cluster.replicas:
            if running.process.is_alive:
                self._check_leader(running)
                log = running.log
                is_looked_at = not (running.process.is_paused or self.is_rotten(running))
                if log is not None and log.offline_because is None and is_looked_at:
                    with unobserved(running):
                        self._check_bytes(running, log)

    def _look_at_states(self) -> None:
        """The state of the cluster as brokers and the controller fold it, with what follows from it."""
        folds = [(f"broker {home.broker_id}", home.broker._fold) for home in self.cluster.homes.values() if home.broker]
        folds += [(each.process.name, each.controller.reign.changes._fold)
                  for each in self.cluster.controllers if each.serves and each.controller]  # fmt: skip
        for where, fold in folds:
            if self._versions.get(where) != (fold.version, fold):
                self._versions[where] = fold.version, fold
                for broken in fold.state.broken_invariants():
                    self._broken(f"{where}: {broken}")

    def _check_leader(self, running: RunningReplica) -> None:
        epoch = running.leads_epoch
        if epoch is None:
            return
        spec = running.spec
        me = (spec.broker_id, spec.incarnation)
        other = self._leaders.setdefault((spec.topic_id, spec.partition, epoch), me)
        if other != me:
            self._broken(f"{spec.topic}-{spec.partition}: epoch {epoch} is led by {me} and was led by {other}")
        if running.log is not None:
            before = self._high_watermarks.get((spec.topic_id, spec.partition, epoch), 0)
            now = self._high_watermarks[spec.topic_id, spec.partition, epoch] = running.log.high_watermark
            if now < before:
                self._broken(f"{spec}: its high watermark went back from {before} to {now} in epoch {epoch}")

    def was_lost_from(self, topic: str, partition: int, offset: int) -> None:
        """All machines lost their power, and no disk held anything from there on; or a person gives it up.

        The same batches may come back under another epoch: the copy that is left may be of a leader whose followers
        never had them, and whose writers sent them again to the next one.
        """
        self._candidates.was_lost_from(topic, partition, offset)
        self._given_up.from_offset(topic, partition, offset)
        self._forget_from((topic, partition), offset)
        committed = self._committed[topic, partition]
        self._committed[topic, partition] = {at: (_ANY_EPOCH, checksum) for at, (_, checksum) in committed.items()}

    def _forget_from(self, name: tuple[str, int], offset: int) -> None:
        committed = self._committed.get(name, {})
        self._committed[name] = {at: found for at, found in committed.items() if at < offset}

    def _check_bytes(self, running: RunningReplica, log: PartitionLog) -> None:
        name = (running.spec.topic, running.spec.partition)
        if name in self.forgiven or self._given_up.is_from_before(self.cluster, running, log):
            return
        self._forget_from(name, self._given_up.news_of(running))
        seen = self._seen.get(running.spec.incarnation)
        if seen is None or seen.cuts != log.shape or seen.offset < log.log_start_offset:
            seen = self._seen[running.spec.incarnation] = _Seen(log.log_start_offset, log.shape)
        if log.high_watermark < seen.high_watermark:
            self._broken(f"{running.spec}: its high watermark went back from {seen.high_watermark} without a cut")
        seen.high_watermark = log.high_watermark
        committed = self._committed.setdefault(name, {})
        while seen.offset < log.high_watermark:
            read = log.read(seen.offset, _MAX_BYTES, Isolation.HIGH_WATERMARK)
            if not read.data:
                break
            for batch in split_batches(read.data):
                header = read_header(batch)
                found = (header.leader_epoch, crc32(batch[HEADER_BYTES:]))
                expected = committed.setdefault(header.base_offset, found)
                if expected == (_ANY_EPOCH, found[1]):
                    expected = committed[header.base_offset] = found
                if expected != found:
                    self._broken(
                        f"{running.spec}: at offset {header.base_offset}, below its high watermark "
                        f"{log.high_watermark}, stands {found} (epoch, checksum) where {expected} was committed"
                    )
            seen.offset = read.next_offset

    def _broken(self, what: str) -> None:
        self.cluster.world.fail("The watcher", InvariantBroken(what))
