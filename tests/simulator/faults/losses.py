"""Faults that take bytes: power cuts, failing disks, lost directories, flipped bits; never more than was promised.

A copy that was hit counts as lost until its replica has come back into the ISR as the process that runs now; and until
then no other copy is hit, unless the plan says that it may. The one exception: once in a while all machines lose their
power at once. Then the disks are read while nothing runs. All of them come back, and the log with the largest last
epoch and end is to be elected (rule 7), for it has all that any of them holds of what was acknowledged. What is not on
that disk is known to be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from raylog.actors.cluster.election.isr_and_elr import LogEnd
from raylog.errors import BatchError, DiskFailed
from raylog.storage.format.record_batch import HEADER_BYTES, check_batch, read_header
from tests.simulator.cluster.chooser import Chooser
from tests.simulator.cluster.simulated_cluster import BrokerHome, RunningReplica, SimulatedCluster
from tests.simulator.faults.forgetful_voters import ForgetfulVoters
from tests.simulator.faults.older_copies import OlderCopies
from tests.simulator.faults.races import Races, is_proposed, same_partition
from tests.simulator.faults.rot import Rot
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.world.faulty_disk import FaultyDisk

_NOTHING_ARRIVES_ANY_MORE = 3.9  # seconds after the last machine has lost its power
_ALL_BOOT = (4.0, 5.0)
_UNTIL_ELECTED = 10.0
_CHANGES = ("create", "make_directory", "truncate", "write_at", "sync", "rename", "remove", "sync_directory")


@dataclass
class Losses:
    cluster: SimulatedCluster
    random: Random
    plan: Plan
    lost: Callable[[int, int], None]
    races: Races
    chooser: Chooser
    _hit: dict[int, float] = field(default_factory=dict)  # broker: when its copies may be whole again
    _rotten: set[int] = field(default_factory=set)  # brokers with a flipped bit that may not have been found
    _quiet_until: float = 0.0
    _was_cut: bool = False
    rot: Rot = field(init=False)
    _replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by partition, when all lost their power

    def __post_init__(self) -> None:
        self.rot = Rot(self.cluster, self.random, self.plan)

    def faults(self) -> list[tuple[int, Callable[[], bool]]]:
        plan = self.plan
        found: list[tuple[int, Callable[[], bool]]] = []
        if plan.may_lose_copies:
            often = 2 if plan.is_fsync else 1
            found += [(3 * often, self._crash_machine), (2 * often, self._fail_disk)]
        if plan.may_lose_data:
            found += [(1, self._lose_directory), (1, self._flip_bit), (1, self._lose_and_silence)]
            found += [(1, self._lose_while_joining)]
        if plan.is_fsync:
            found += [(2, self._crash_all_at_write), (1, self._fail_sync_and_crash)]
        if plan.may_crash_all_once:
            found += [(1, self._cut_all_power)]
        if plan.may_lose_last:
            found += [(30, self._lose_last)]
        # Nearly all of these are left to a theme of theirs, so that the other seeds stay what they are.
        if plan.may_lose_copies:
            found += [(0, self._turn_read_only)]
        return [*found, (0, self._rot_bit), (0, self._rot_alone), (0, self._forget_metadata), (0, self._restore_older)]

    @property
    def are_being_counted(self) -> bool:
        """All machines have lost their power: until a leader was elected nothing else goes wrong."""
        return self.cluster.world.now < self._quiet_until

    # --- what is whole ------------------------------------------------------------------------------------------

    def _up(self) -> list[BrokerHome]:
        return [home for home in self.cluster.homes.values() if home.machine.is_up]

    def _may_hit(self) -> bool:
        self._forget_whole()
        return not self._hit

    def _forget_whole(self) -> None:
        self._hit = {broker: when for broker, when in self._hit.items() if not self._is_whole(broker, when)}
        self._rotten.intersection_update(self._hit)

    def _may_be_cut(self) -> list[BrokerHome]:
        """Return homes whose power may be cut. Damage behind the recovery point would pass for a torn tail then."""
        self._forget_whole()
        return [home for home in self._up() if home.broker_id not in self._rotten]

    def _is_whole(self, broker_id: int, not_before: float) -> bool:
        """Whether all its replicas are in sync, as the newest controller has it, as the processes that run now.

        Right after a crash the record still speaks of the ones that died. What is not committed may be forgotten: the
        next controller may then elect only replicas that have less.
        """
        controller = self.cluster.serving()
        if controller is None or self.cluster.world.now < not_before or self.rot.is_on(broker_id):
            return False
        if not controller.reign.changes.is_committed:
            return False
        state = controller.reign.changes.state
        running = {
            (each.spec.topic_id, each.spec.partition): each.spec.incarnation
            for each in self.cluster.replicas
            if each.spec.broker_id == broker_id and each.has_registered
        }
        return all(
            broker_id in each.isr and running.get(each.id) == state.incarnation(*each.id, broker_id)
            for each in state.partitions_on(broker_id)
        )

    def _hits(self, home: BrokerHome, seconds: float = 0.0) -> None:
        self._hit[home.broker_id] = self.cluster.world.now + seconds

    # --- machines -----------------------------------------------------------------------------------------------

    def _crash_machine(self) -> bool:
        up = self._may_be_cut()
        if not up:
            return False
        if self.plan.may_crash_all:
            victims = up if self.random.random() < 0.5 else [self.random.choice(up)]
        else:
            victims = [self.random.choice(up)] if self._may_hit() else []
        for home in victims:
            self._hits(home)
            self.cluster.crash_machine(home)
        return bool(victims)

    def _crash_all_at_write(self) -> bool:
        """Crash all machines while a leader counts records that it has not synced."""
        running = self.races.leader()
        if running is None:
            return False
        self.races.when(lambda: _has_unsynced(running), self._crash_all)
        return True

    def _crash_all(self) -> None:
        for home in self._may_be_cut():
            self._hits(home)
            self.cluster.crash_machine(home)

    def _fail_sync_and_crash(self) -> bool:
        """Fail a sync, then cut the power: what it was to write is gone, whatever later syncs say (rule 2)."""
        running = self.races.leader()
        if running is None:
            return False
        homes = self._up() if self.plan.replication > 1 else [self.cluster.homes[running.spec.broker_id]]
        seconds = self.random.uniform(0.05, 0.4)
        self.races.perhaps_alone(seconds + 0.5)
        for home in homes:
            self._hits(home, seconds + 0.5)
            home.machine.fail_disk("sync", f"{TOPIC}-", seconds=seconds, error=DiskFailed("simulated"))
        self.cluster.world.after(seconds + self.random.uniform(0.1, 0.5), self._crash_all)
        return True

    def _cut_all_power(self) -> bool:
        up, controller = self._up(), self.cluster.serving()
        everything = [*self.cluster.homes]
        if controller is None or self._was_cut or len(up) != len(everything) or not self._may_hit():
            return False
        if not all(self._is_whole(each, 0.0) for each in everything):
            return False
        self._was_cut = True
        state = controller.reign.changes.state
        ours = [each for each in state.partitions.values() if state.name_of(each) == TOPIC]
        self._replicas = {each.partition: each.replicas for each in ours}
        self._quiet_until = self.cluster.world.now + _ALL_BOOT[1] + _UNTIL_ELECTED
        self.cluster.world.network.heal()
        for home in up:
            self._hits(home)
            self.cluster.crash_machine(home, _ALL_BOOT)
        self.cluster.world.after(_NOTHING_ARRIVES_ANY_MORE, self._see_what_survived)
        return True

    def _see_what_survived(self) -> None:
        for stream in self.cluster.world.network.streams():  # an answer of before would be no news of what is now
            for side in (stream, stream.far):
                if side is not None and side.out is not None:
                    side.out.lose_all_but(0)
        for partition, brokers in self._replicas.items():
            ends = [surviving_end(self.cluster.homes[each].machine.disk, partition) for each in brokers]
            _, offset = max(ends)
            self.cluster.world.trace("{}-{}: nothing from {} on has survived: {}", TOPIC, partition, offset, ends)
            self.lost(partition, offset)

    # --- disks --------------------------------------------------------------------------------------------------

    def _fail_disk(self) -> bool:
        """An error that goes by. What was not synced on that disk may be lost, as in a power cut."""
        up = self._up()
        if not up or not self._may_hit():
            return False
        home = self.random.choice(up)
        seconds = self.random.uniform(0.1, 2.0)
        self._hits(home, seconds + 0.5)
        operation = self.random.choice(("sync", "sync", "write_at", "read_at", ""))
        place = self.random.choice((".log", f"{TOPIC}-", ""))
        home.machine.fail_disk(operation, place, seconds=seconds, error=DiskFailed("simulated"))
        return True

    def _turn_read_only(self) -> bool:
        """Make a disk read-only, as a file system does after an error of its disk."""
        up = self._up()
        if not up or not self._may_hit():
            return False
        home = self.random.choice(up)
        seconds = self.random.uniform(0.5, 4.0)
        self._hits(home, seconds + 0.5)
        for operation in _CHANGES:
            home.machine.fail_disk(operation, seconds=seconds, error=DiskFailed("simulated: read-only file system"))
        return True

    def _rot_bit(self) -> bool:
        """Flip a bit on a disk that is read meanwhile."""
        if not self._may_hit():
            return False
        return self._rotted(self.rot.strike(self.cluster.replicas))

    def _rotted(self, home: BrokerHome | None) -> bool:
        if home is not None:
            self._hits(home)
            self._rotten.add(home.broker_id)
        return home is not None

    def _forget_metadata(self) -> bool:
        """A voter forgets the end of the metadata log, while another one has not heard of it yet."""
        voters = ForgetfulVoters(self.cluster, self.random, self.races, self._hits)
        return self._may_hit() and voters.strike()

    def _restore_older(self) -> bool:
        """Put back a copy of a broker's directory that is some seconds old."""
        return self._may_hit() and OlderCopies(self.cluster, self.random, self.races, self._hits).strike()

    def _rot_alone(self) -> bool:
        """A leader hears of its rot while it is the only one in sync, and has acknowledged more since."""
        leader = self.races.leader()
        if leader is None or leader.log is None or not self._may_hit() or not self._rotted(self.rot.strike([leader])):
            return False
        self.races.perhaps_alone(4.0)
        for follower in self.races.followers(leader):
            follower.process.pause()
            self.cluster.world.after(3.0, follower.process.resume)
        before = leader.log.high_watermark
        self.races.when(lambda: self._is_alone(leader, before), self.rot.tell_all)
        return True

    def _is_alone(self, leader: RunningReplica, before: int) -> bool:
        controller, log = self.cluster.serving(), leader.log
        if controller is None or log is None or log.high_watermark <= before:
            return False
        partition = controller.reign.changes.state.partitions.get((leader.spec.topic_id, leader.spec.partition))
        return partition is not None and partition.isr == (leader.spec.broker_id,)

    def _lose_directory(self) -> bool:
        return self._take_copy(self._take_directory)

    def _flip_bit(self) -> bool:
        return self._take_copy(self._take_bit)

    def _take_copy(self, take: Callable[[RunningReplica], None]) -> bool:
        """Take the copy of a replica whose process is down, while its broker is there."""
        running = [each for each in self.cluster.replicas if each.log is not None]
        if not running or not self._may_hit():
            return False
        victim = self.random.choice(running)
        if self._alone_is_enough(victim):
            return False
        self.chooser.copy_goes(victim, lambda: take(victim))
        return True

    def _alone_is_enough(self, victim: RunningReplica) -> bool:
        """Whether this copy may be all that is promised: it is alone in the ISR, and an operator allows that."""
        controller = self.cluster.serving()
        if controller is None:
            return True
        state = controller.reign.changes.state
        partition = state.partitions.get((victim.spec.topic_id, victim.spec.partition))
        if partition is None:
            return True
        return partition.isr == (victim.spec.broker_id,) and state.min_insync(partition) == 1

    def _take_directory(self, victim: RunningReplica) -> None:
        home = self.cluster.homes[victim.spec.broker_id]
        self._hits(home)
        victim.process.kill()
        disk, directory = home.machine.disk, victim.spec.directory
        self.cluster.world.trace("{} loses its directory {}", victim.spec, directory)
        for name in disk.list_directory(directory):
            disk.remove(f"{directory}/{name}")
        disk.remove_directory(directory)

    def _lose_and_silence(self) -> bool:
        """One copy is hit, and before it is whole again nothing is heard of those that have everything."""
        leader = self.races.leader()
        followers = [] if leader is None else [each for each in self.races.followers(leader) if each.log is not None]
        if leader is None or not followers or not self._may_hit():
            return False
        victim = self.random.choice(followers)
        home = self.cluster.homes[victim.spec.broker_id]
        way = self.random.choice((self._take_directory, self._take_bit, self._take_power, self._take_power))
        way(victim)
        whole = [each.process for each in (leader, *followers) if each is not victim]
        when = self.random.uniform(0.0, 0.4)
        self.races.perhaps_alone(when + 4.0)
        for process in whole:
            self.cluster.world.after(when, process.pause, self.random.choice((2.5, 4.0)))
        if self.random.random() < 0.4:  # and its next process may forget what this one knew
            self.cluster.world.after(when + self.random.uniform(0.3, 1.5), self._kill_replicas_on, home)
        return True

    def _kill_replicas_on(self, home: BrokerHome) -> None:
        for running in list(self.cluster.replicas):
            if running.spec.broker_id == home.broker_id:
                self.races.kill(running.process)

    def _take_power(self, victim: RunningReplica) -> None:
        home = self.cluster.homes[victim.spec.broker_id]
        self._hits(home)
        self.cluster.crash_machine(home, (0.3, 1.0))

    def _lose_while_joining(self) -> bool:
        """A follower loses its directory while the controller has yet to hear that it has joined."""
        leader, controller = self.races.leader(), self.races.controller_machine()
        followers = [] if leader is None else self.races.followers(leader)
        if leader is None or controller is None or not followers or leader.process.machine is controller:
            return False
        if not self._may_hit():
            return False
        joining, slow = followers[0], 0.9
        self._hits(self.cluster.homes[joining.spec.broker_id], 1.0)
        self.cluster.world.network.slow_down(leader.process.machine, controller, slow)
        joining.process.kill()
        self.races.perhaps_alone(4.0)
        self.races.when(lambda: is_proposed(leader, joining), lambda: self._lose_joining(leader, joining, slow))
        return True

    def _lose_joining(self, leader: RunningReplica, joined: RunningReplica, slow: float) -> None:
        self.cluster.world.network.block(leader.process.machine, joined.process.machine)
        for running in self.cluster.replicas:
            if running.spec.broker_id == joined.spec.broker_id and same_partition(running, joined):
                self._take_directory(running)
                break
        self.cluster.world.after(slow + self.random.uniform(0.0, 0.3), self.races.kill_and_heal, leader.process)

    # --- the last copy ------------------------------------------------------------------------------------------

    def _lose_last(self) -> bool:
        """All others are left behind, and when only the leader is left in sync its copy goes."""
        leader = self.races.leader()
        if leader is None or leader.spec.topic != TOPIC or leader.spec.partition >= self.plan.partitions:
            return False
        for follower in self.races.followers(leader):
            if follower.process.machine is not leader.process.machine:
                self._send_away(follower)
        self.races.perhaps_alone(5.0)
        self.races.when(lambda: self._is_last(leader), lambda: self._later_strike(leader))
        return True

    def _send_away(self, follower: RunningReplica) -> None:
        home, seconds = self.cluster.homes[follower.spec.broker_id], self.random.uniform(3.0, 8.0)
        if self.random.random() < 0.3:  # and it comes back rebooted, with all that it had
            home.machine.disk.sync_everything()
            self.cluster.crash_machine(home, (seconds, seconds))
            return
        others = [each for each in self.cluster.world.machines if each is not home.machine]
        self.cluster.world.network.partition([home.machine], others)
        self.cluster.world.after(seconds, self.races.heal)

    def _is_last(self, leader: RunningReplica) -> bool:
        controller = self.cluster.serving()
        if controller is None or leader.leads_epoch is None:
            return False
        known = controller.reign.changes.state.partitions.get((leader.spec.topic_id, leader.spec.partition))
        return known is not None and known.last_members == (leader.spec.broker_id,) == (known.leader,)

    def _later_strike(self, leader: RunningReplica) -> None:
        self.cluster.world.after(self.random.uniform(0.0, 1.0), self._strike_last, leader)

    def _strike_last(self, leader: RunningReplica) -> None:
        if self.races.is_over or not leader.process.is_alive or not self._is_last(leader):
            return
        take = self.random.choice((self._take_directory, self._take_bit))
        self.chooser.last_copy_goes(leader.spec.partition, lambda: take(leader))

    def _take_bit(self, victim: RunningReplica) -> None:
        home = self.cluster.homes[victim.spec.broker_id]
        disk, directory = home.machine.disk, victim.spec.directory
        logs = [path for path in disk.files() if path.startswith(f"{directory}/") and path.endswith(".log")]
        path = max(logs, default="")  # the growing segment: damage in the others is found by whoever reads them
        self._hits(home)
        victim.process.kill()
        size = disk.files().get(path, 0)  # a log that begins anew has no segment for a moment
        if not size:
            return
        bit = self.random.randrange(8 * size)
        self.cluster.world.trace("{}: bit {} of {} flips", victim.spec, bit, path)
        disk.flip_bit(path, bit)
        self._rotten.add(home.broker_id)


def _has_unsynced(running: RunningReplica) -> bool:
    log = running.log
    return log is not None and log.recovery_point < log.high_watermark


def surviving_end(disk: FaultyDisk, partition: int) -> LogEnd:
    """(last epoch, end offset) of what a disk holds of a partition, read as plainly as can be."""
    epoch, end = -1, 0
    for path in sorted(path for path in disk.files() if f"/{TOPIC}-{partition}/" in path and path.endswith(".log")):
        data, position = disk.read_file(path), 0
        while position + HEADER_BYTES <= len(data):
            header = read_header(data, position)
            try:
                check_batch(memoryview(data)[position : position + max(0, header.size)])
            except BatchError:
                return epoch, end
            if header.base_offset != end or header.leader_epoch < epoch:
                return epoch, end
            epoch, end = header.leader_epoch, header.next_offset
            position += header.size
        if position != len(data):
            break
    return epoch, end
