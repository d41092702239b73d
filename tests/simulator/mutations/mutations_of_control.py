"""Rules 4, 6, 7, 17 and 18 switched off where the controller and the metadata log keep them. See `mutations.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from raylog.actors.cluster import producer_ids, topic_settings
from raylog.actors.cluster.broker_membership import register_broker
from raylog.actors.cluster.election import isr_and_elr, isr_changes, leader_election, replica_registration
from raylog.actors.cluster.election.isr_and_elr import PartitionFacts, facts_of
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.metadata_log.copy import MetadataCopy
from raylog.actors.metadata_log.directory_marks import DirectoryMarks
from raylog.actors.metadata_log.feed import BrokerFeed
from raylog.actors.metadata_log.files import MetadataFiles
from raylog.actors.metadata_log.rules import quorum
from raylog.actors.metadata_log.rules.quorum import CommitRule, PromisedLog, is_majority
from raylog.actors.metadata_log.rules.tail import LogTail
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.control_messages import RegisterBroker
from raylog.actors.protocol.messages import Message
from raylog.actors.replica.replica import Replica
from tests.simulator.mutations.mutations import Patches, mutation, theme
from tests.simulator.plan import Plan


def _cuts_all_power(plan: Plan) -> bool:
    return plan.theme == "power" and plan.may_crash_all_once


# --- rule 4 ---------------------------------------------------------------------------------------------------------


@mutation(4, "an ISR proposal is recorded whatever partition epoch it was made for")
def partition_epoch_unchecked(patches: Patches) -> None:
    check = isr_changes._check_leader

    def checked(state: Any, partition: PartitionState, proposal: Any) -> None:
        check(state, partition, replace(proposal, partition_epoch=partition.partition_epoch))

    patches.function(check, checked)


@mutation(4, "an ISR proposal is recorded whatever epochs it was made for")
def proposal_epochs_unchecked(patches: Patches) -> None:
    check = isr_changes._check_leader

    def checked(state: Any, partition: PartitionState, proposal: Any) -> None:
        epochs = {"partition_epoch": partition.partition_epoch, "leader_epoch": partition.leader_epoch}
        check(state, partition, replace(proposal, **epochs))

    patches.function(check, checked)


@mutation(4, "a member of an ISR proposal may be any incarnation", where=theme("lost copies"))
def proposal_incarnation_unchecked(patches: Patches) -> None:
    check = isr_changes._check_member

    def checked(state: Any, partition: PartitionState, facts: PartitionFacts, member: tuple[int, int]) -> None:
        check(state, partition, facts, (member[0], state.incarnation(*partition.id, member[0])))

    patches.function(check, checked)


@mutation(
    4,
    "the dead stay in the ISR until the leader finds that they lag",
    masked="it is about time only: writes wait for replica.lag.time.max.ms",
)
def dead_stay_in_isr(patches: Patches) -> None:
    patches.function(isr_and_elr.without_dead, lambda partition, gone, facts: partition)


# --- rule 6 ---------------------------------------------------------------------------------------------------------


@mutation(6, "whoever is alive is elected")
def anybody_elected(patches: Patches) -> None:
    in_order = leader_election._in_order

    def anybody(partition: PartitionState, brokers: Iterable[int], facts: PartitionFacts) -> list[int]:
        return in_order(partition, partition.replicas, facts)[::-1]

    patches.function(in_order, anybody)


@mutation(6, "an election does not raise the epoch")
def epoch_not_raised(patches: Patches) -> None:
    led_by = leader_election.led_by

    def led(partition: PartitionState, leader: int, how: str, facts: PartitionFacts) -> PartitionState:
        elected = led_by(partition, leader, how, facts)
        return elected if partition.never_led else replace(elected, leader_epoch=partition.leader_epoch)

    patches.function(led_by, led)


@mutation(6, "an election is announced before it is durable", where=theme("controllers"))
def announced_before_durable(patches: Patches) -> None:
    next_one = BrokerFeed._next

    def next_outgoing(self: BrokerFeed, *, say_hello: bool) -> Any:
        source = self._source
        told = SimpleNamespace(tail=source.tail, epoch=source.epoch, version=source.tail.end_offset)
        self._source = told
        try:
            return next_one(self, say_hello=say_hello)
        finally:
            self._source = source

    patches.attribute(BrokerFeed, "_next", next_outgoing)


# --- rule 7 ---------------------------------------------------------------------------------------------------------


@mutation(7, "a replica that comes back unproven stays where it was", where=theme("lost copies"))
def unproven_stays(patches: Patches) -> None:
    patches.function(isr_and_elr.without_unproven, lambda partition, arrival, facts: partition)


@mutation(7, "that a log is unproven is forgotten with its process", where=theme("lost copies"))
def unproven_forgotten(patches: Patches) -> None:
    registration = replica_registration._registration

    def of_report(state: Any, partition: PartitionState, broker_id: int, report: Any) -> Any:
        return replace(registration(state, partition, broker_id, report), unproven=report.unproven)

    patches.function(registration, of_report)


@mutation(
    7,
    "nobody who leaves a small ISR is eligible",
    masked="it is about time only: the last member of the ISR comes back, or all are in doubt and the largest leads",
)
def leavers_not_eligible(patches: Patches) -> None:
    with_isr = isr_and_elr.with_isr
    patches.function(with_isr, lambda *args: replace(with_isr(*args), elr=()))


@mutation(7, "who has left the ISR stays eligible when it is large enough again", where=theme("races"))
def leavers_stay_eligible(patches: Patches) -> None:
    with_isr = isr_and_elr.with_isr

    def with_leavers(partition: PartitionState, isr: Iterable[int], minimum: int) -> PartitionState:
        return with_isr(partition, isr, 1_000)

    patches.function(with_isr, with_leavers)


@mutation(
    7,
    "in doubt it counts how far a replica was at its start",
    masked="by chance: hardly ever has one that is not in sync more than the last member; `test_doubt.py` tells",
)
def old_ends_in_doubt(patches: Patches) -> None:
    patches.attribute(Liveness, "marks_of", lambda self, key, incarnation: None)


@mutation(7, "in doubt the first is elected, not the largest", where=_cuts_all_power)
def first_in_doubt(patches: Patches) -> None:
    patches.function(
        leader_election._largest_logs,
        lambda partition, facts, candidates: leader_election._in_order(partition, partition.replicas, facts),
    )


@mutation(7, "an election in doubt does not wait for the other replicas", where=_cuts_all_power)
def doubt_does_not_wait(patches: Patches) -> None:
    def in_doubt(partition: PartitionState, facts: PartitionFacts, waited: bool) -> list[int]:
        if not leader_election.is_in_doubt(partition) or facts.alive.isdisjoint(partition.doubtful_brokers):
            return []
        return leader_election._largest_logs(partition, facts, leader_election._electable(partition, facts))

    patches.function(leader_election._in_doubt, in_doubt)


@mutation(7, "who is eligible stays so when min.insync.replicas is lowered", where=theme("lost copies"))
def leavers_stay_when_minimum_is_lowered(patches: Patches) -> None:
    def without_clearing(state: Any, live: Any, topic: Any, partition: PartitionState, config: Any) -> Any:
        facts = replace(facts_of(state, live, partition), config=config)
        return settle(partition, partition, facts, "settings altered")

    patches.function(topic_settings._consequences, without_clearing)


# --- rule 13 --------------------------------------------------------------------------------------------------------


@mutation(13, "a broker obeys a controller whose time is over", where=theme("controllers"))
def older_controller_obeyed(patches: Patches) -> None:
    async def obey(self: MetadataCopy, epoch: int) -> None:
        """Obey any controller."""

    patches.attribute(MetadataCopy, "_obey", obey)
    known = Replica._is_news

    def is_news(self: Replica, assigned: Any) -> bool:
        self._known_epoch = min(self._known_epoch, assigned.leader_epoch)
        return known(self, assigned)

    patches.attribute(Replica, "_is_news", is_news)


# --- rule 17 --------------------------------------------------------------------------------------------------------


@mutation(17, "a directory's mark rises with time only", where=theme("older copies"))
def no_mark_at_registration(patches: Patches) -> None:
    patches.attribute(DirectoryMarks, "registered", lambda self: None)


@mutation(7, "a broker may register with an older copy of its directory", where=theme("older copies"))
def older_directory_registers(patches: Patches) -> None:
    def register(state: ClusterState, live: Liveness, request: RegisterBroker) -> list[Message]:
        known = state.brokers.get(request.broker_id)
        newest = replace(request, mark=max(request.mark, 0 if known is None else known.mark))
        return register_broker(state, live, newest)

    patches.function(register_broker, register)


@mutation(17, "a promise is kept in memory only", where=theme("controllers"))
def promise_not_durable(patches: Patches) -> None:
    async def keep(self: MetadataCopy, epoch: int) -> None:
        self._promised_epoch = epoch

    patches.attribute(MetadataCopy, "_keep_promise", keep)


@mutation(17, "a controller is obeyed under a lower epoch than was promised", where=theme("controllers"))
def promise_not_kept(patches: Patches) -> None:
    async def obey(self: MetadataCopy, epoch: int) -> None:
        if epoch > self._promised_epoch:
            await self._keep_promise(epoch)

    patches.attribute(MetadataCopy, "_obey", obey)


@mutation(17, "a record is committed where one voter has it", where=theme("controllers"))
def commit_without_majority(patches: Patches) -> None:
    def advance(self: CommitRule) -> bool:
        most = max((self._counted(voter) for voter in self._voters), default=0)
        if most <= max(self.committed, self._own_offset):
            return False
        self.committed = most
        return True

    patches.attribute(CommitRule, "_advance", advance)


@mutation(
    17, "what was adopted is committed before a record of the controller's own epoch is", where=theme("controllers")
)
def commit_without_own_record(patches: Patches) -> None:
    def advance(self: CommitRule) -> bool:
        ends = sorted((self._counted(voter) for voter in self._voters), reverse=True)
        at_majority = ends[len(ends) // 2] if ends else 0
        if at_majority <= self.committed:
            return False
        self.committed = at_majority
        return True

    patches.attribute(CommitRule, "_advance", advance)


@mutation(17, "a voter acknowledges what it has not synced", where=theme("power"))
def acknowledged_before_sync(patches: Patches) -> None:
    def append(self: MetadataFiles, data: Any, now_ms: int) -> None:
        self._kept_log().append_as_follower(data, now_ms)

    patches.attribute(MetadataFiles, "append", append)


@mutation(17, "a tail that diverges from the controller's log is kept", where=theme("controllers"))
def divergent_tail_kept(patches: Patches) -> None:
    def new_ones(self: MetadataCopy, batches: Sequence[Any]) -> Sequence[Any]:
        return [batch for batch in batches if batch.end_offset > self._tail.end_offset]

    patches.attribute(MetadataCopy, "_new_ones", new_ones)
    epoch_before = LogTail.epoch_before

    def any_epoch(self: LogTail, offset: int) -> int | None:
        return self.last_epoch if offset == self.end_offset else epoch_before(self, offset)

    patches.attribute(LogTail, "epoch_before", any_epoch)


@mutation(
    17, "a voter counts that may have forgotten what it synced", where=theme("forgetful voters")
)
def forgetful_voter_counts(patches: Patches) -> None:
    load = MetadataFiles.load

    def loaded(self: MetadataFiles, now_ms: int) -> Any:
        return load(self, now_ms)._replace(is_unproven=False)

    patches.attribute(MetadataFiles, "load", loaded)


@mutation(17, "not the newest log is adopted, but the oldest", where=theme("controllers"))
def oldest_log_adopted(patches: Patches) -> None:
    def choose(promised: Collection[PromisedLog]) -> PromisedLog | None:
        for log in sorted(promised, key=quorum._age_then_id):
            if is_majority([other.voter for other in promised], log.voters):
                return log
        return None

    patches.function(quorum.choose_log, choose)


@mutation(17, "a log is adopted where one voter has promised", where=theme("controllers"))
def adopted_without_majority(patches: Patches) -> None:
    def choose(promised: Collection[PromisedLog]) -> PromisedLog | None:
        return max((log for log in promised if log.voters), key=quorum._age_then_id, default=None)

    patches.function(quorum.choose_log, choose)


@mutation(17, "whoever holds the log counts for its majority, voter or not", where=theme("controllers"))
def voters_ignored(patches: Patches) -> None:
    def advance(self: CommitRule) -> bool:
        ends = sorted(self._synced.values(), reverse=True)
        needed = len(self._voters) // 2
        at_majority = ends[needed] if len(ends) > needed else 0
        if at_majority <= max(self.committed, self._own_offset):
            return False
        self.committed = at_majority
        return True

    patches.attribute(CommitRule, "_advance", advance)


@mutation(17, "voters change all at once", where=lambda plan: plan.has_operator and plan.brokers > 3)
def voters_change_at_once(patches: Patches) -> None:
    patches.function(quorum.next_voters, lambda current, wanted, ready: tuple(sorted(wanted)))


@mutation(
    17,
    "a controller serves before a record of its epoch is committed",
    masked="what it decides is let out when it is committed, and then all before it is committed as well",
)
def serves_before_commit(patches: Patches) -> None:
    async def commit_first(self: MetadataWriter, committed: Any, reachable: Any, deadline: float) -> None:
        for broker_id, stream in reachable():
            self.connect(broker_id, stream)

    patches.attribute(MetadataWriter, "_commit_first", commit_first)


# --- rule 18 --------------------------------------------------------------------------------------------------------


@mutation(18, "a block of producer ids is given out before it is written down", where=lambda plan: plan.has_operator)
def producer_ids_not_recorded(patches: Patches) -> None:
    allocate = producer_ids.allocate_producer_ids
    patches.function(allocate, lambda *args: allocate(*args)._replace(records=[]))
