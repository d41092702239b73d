"""The person who chooses a copy where nobody leads any more (rule 7), and what must be there for that person to see.

- A partition waits for a person only where its last copy was taken away on purpose, or where the plan allows any loss,
  or where nobody writes, or nobody has heard yet that it leads: a replica that is elected and dies before it hears of
  it comes back blank (seeds 50011, 142).
- Or where the only copy was taken that had heard that it was in sync, while by the record the ISR was large enough: the
  others, too, may come back blank. As long as it was not, nothing was acknowledged, and nobody has to choose.
- What was acknowledged, and was on some disk when the last copy went, is on some disk at the end: in the log that was
  chosen, or set aside. Choices are often bad ones, so that there is something to set aside.
- What a choice loses is known before it is made: all from where the chosen copy ends, or differs from what was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from raylog.actors.cluster.copies import DOWN, CopyDescription
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.errors import BatchError, RaylogError
from raylog.storage.directory.set_aside_names import DAMAGED
from raylog.storage.format.record_batch import HEADER_BYTES, check_batch, read_header
from tests.simulator.checks.history import InvariantBroken, PartitionHistory
from tests.simulator.clients.clients import records_of
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.plan import OTHER_TOPIC, TOPIC, Plan
from tests.simulator.world.faulty_disk import FaultyDisk

_LOOK_SECONDS = 0.5
_PATIENCE = 5.0  # by then nothing of before is under way any more
_CALL_SECONDS = 6.0
_BEST = 0.4


@dataclass
class Chooser:
    """`begin`. `lost` is told of each partition and the offset from which on a choice gives everything up."""

    cluster: SimulatedCluster
    random: Random
    plan: Plan
    histories: list[PartitionHistory]
    lost: Callable[[int, int], None]
    choices: int = 0
    _struck: set[int] = field(default_factory=set)  # partitions whose last or only copy was taken away
    _owed: dict[int, set[bytes]] = field(default_factory=dict)
    _waiting: dict[tuple[str, int], float] = field(default_factory=dict)
    _ever_in_sync: dict[PartitionId, set[int]] = field(default_factory=dict)
    _ever_led: set[PartitionId] = field(default_factory=set)
    _ids: dict[tuple[str, int], PartitionId] = field(default_factory=dict)  # by topic and partition
    _is_asking: bool = False

    def begin(self) -> None:
        if not self.cluster.is_over:
            self._look()
            self.cluster.world.after(_LOOK_SECONDS, self.begin)

    def copy_goes(self, victim: RunningReplica, take: Callable[[], None]) -> None:
        """Take one copy of several, as promised. Another one that was ever in sync has to lead without a person."""
        self._note_in_sync()
        spec = victim.spec
        others = self._ever_in_sync.get((spec.topic_id, spec.partition), set()) - {spec.broker_id}
        if not others and spec.topic == TOPIC and self._is_used((spec.topic_id, spec.partition)):
            self._struck.add(spec.partition)
        take()

    def _is_used(self, partition: PartitionId) -> bool:
        """Whether its ISR was ever large enough for acks=all, as far as is known."""
        controller = self.cluster.serving()
        known = None if controller is None else controller.reign.changes.state.partitions.get(partition)
        return known is None or known.may_have_acknowledged

    def last_copy_goes(self, partition: int, take: Callable[[], None]) -> None:
        """Take the last copy away. All that is acknowledged and on a disk after that has to be found in the end.

        An earlier one may have left records in the very copy that goes now: these are owed no more.
        """
        self._struck.add(partition)
        self._check_owed(partition)
        take()
        self._owed[partition] = set(self.histories[partition].acknowledged) & self._on_disks(partition)

    def check_final(self) -> None:
        for partition in self._owed:
            self._check_owed(partition)

    def _check_owed(self, partition: int) -> None:
        missing = self._owed.get(partition, set()) - self._on_disks(partition)
        if missing:
            some = sorted(missing)[:3]
            raise InvariantBroken(
                f"{TOPIC}-{partition}: {len(missing)} acknowledged records were on a disk when the last copy went, "
                f"and are in no log any more, set aside or not: {some}"
            )

    def _on_disks(self, partition: int) -> set[bytes]:
        found: set[bytes] = set()
        for home in self.cluster.homes.values():
            disk = home.machine.disk
            for path in disk.files():
                directory, _, name = path.removeprefix("/data/").partition("/")
                is_of_it = directory.partition("@")[0] == f"{TOPIC}-{partition}" and "@removed-" not in directory
                if is_of_it and name.endswith(".log"):
                    found.update(value for _, value in sound_records(disk, path))
        return found

    def _note_in_sync(self) -> None:
        """Note who is in the ISR and has heard of it, for a replica that dies before that comes back blank. One that
        is to write it down with its first batch is known again by who created it.

        Note, too, which partitions were led: a leader writes down its epoch first, and its followers with its records.
        """
        controller = self.cluster.serving()
        if controller is None:
            return
        state = controller.reign.changes.state
        for running in self.cluster.replicas:
            log, broker_id = running.log, running.spec.broker_id
            known = state.partitions.get((running.spec.topic_id, running.spec.partition))
            if log is not None and log.epochs.latest != NO_EPOCH:
                self._ever_led.add((running.spec.topic_id, running.spec.partition))
            if running.has_registered and known is not None and broker_id in known.isr:
                self._ever_in_sync.setdefault(known.id, set()).add(broker_id)

    # --- choosing -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._note_in_sync()
        running = self.cluster.in_office()
        if running is None or running.controller is None or running.process.is_paused:
            return
        state, now = running.controller.reign.changes.state, self.cluster.world.now
        waiting = [(state.name_of(p), p.partition) for p in state.partitions.values() if p.waits_for_a_person]
        ours = [each for each in waiting if each[0] in (TOPIC, OTHER_TOPIC)]
        self._ids = {(state.name_of(p), p.partition): p.id for p in state.partitions.values()}
        self._waiting = {each: self._waiting.get(each, now) for each in ours}
        for (topic, partition), since in self._waiting.items():
            if not self._may_wait(topic, partition):
                self.cluster.world.fail("The chooser", InvariantBroken(f"{topic}-{partition} waits for a person: why?"))
            if now - since >= _PATIENCE and not self._is_asking:
                self._is_asking = True
                running.process.run(self._choose(running.controller.admin, topic, partition))
                self.cluster.world.after(2 * _CALL_SECONDS, self._may_ask_again)

    def _may_wait(self, topic: str, partition: int) -> bool:
        is_written = self._is_written(topic, partition) and self._was_led(topic, partition)
        return partition in self._struck or self.plan.is_unclean or not is_written

    def _was_led(self, topic: str, partition: int) -> bool:
        """Whether anybody has ever led it. Before that nothing is written, though followers may have heard of it."""
        known = self._ids.get((topic, partition))
        return known is None or known in self._ever_led

    def _is_written(self, topic: str, partition: int) -> bool:
        return topic == TOPIC and partition < len(self.histories)

    def _may_ask_again(self) -> None:
        self._is_asking = False

    async def _choose(self, admin: ControllerAdmin, topic: str, partition: int) -> None:
        try:
            copies = (await admin.describe_copies(topic, partition, timeout=_CALL_SECONDS)).copies
            holders = {each.broker for each in copies if not each.name}
            possible = [each for each in copies if _is_possible(each) and each.broker in holders]
            if not possible:
                return
            chosen = self.random.choice(possible)
            if self.random.random() < _BEST:
                chosen = max(possible, key=lambda each: each.log_end_offset)
            self.cluster.world.trace("a person chooses {} for {}-{}", chosen, topic, partition)
            if self._is_written(topic, partition):
                self._give_up(partition, chosen)
            self.choices += 1
            await admin.recover_partition(
                topic, partition, chosen.broker, accept_loss=True, aside=chosen.name, timeout=_CALL_SECONDS
            )
        except RaylogError as error:
            self.cluster.world.trace("a person cannot choose: {}", str(error))
        else:
            self._is_asking = False

    def _give_up(self, partition: int, chosen: CopyDescription) -> None:
        lost_from = self._first_loss(partition, chosen)
        self.cluster.world.trace("{}-{}: lost from {} on", TOPIC, partition, lost_from)
        self.lost(partition, lost_from)

    def _first_loss(self, partition: int, chosen: CopyDescription) -> int:
        """Return where the chosen log ends, or first differs from what clients were told."""
        disk = self.cluster.homes[chosen.broker].machine.disk
        directory = f"/data/{chosen.name or f'{TOPIC}-{partition}'}/"
        paths = sorted(path for path in disk.files() if path.startswith(directory) and path.endswith(".log"))
        held = dict(record for path in paths for record in sound_records(disk, path))
        told = self._told(partition)
        expected = 0
        while expected in held and told.get(expected, held[expected]) == held[expected]:
            expected += 1
        # A damaged one is restored up to where its broker says. That knows of epochs, which no CRC covers.
        return min(expected, chosen.log_end_offset) if chosen.state == DAMAGED else expected

    def _told(self, partition: int) -> dict[int, bytes]:
        history = self.histories[partition]
        return {**{offset: value for value, offset in history.acknowledged.items()}, **history.seen}


def _is_possible(copy: CopyDescription) -> bool:
    return not copy.unusable and copy.state != DOWN


def sound_records(disk: FaultyDisk, path: str) -> Iterator[tuple[int, bytes]]:
    """(offset, value) of what stands in a file, up to the first thing wrong; read without the disk's faults."""
    number = disk._files.file(path, "Looking at")
    data, position = disk._files.images[number].snapshot(), 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        batch = memoryview(data)[position : position + max(0, header.size)]
        try:
            check_batch(batch)
        except BatchError:
            return
        yield from records_of(batch)
        position += header.size
