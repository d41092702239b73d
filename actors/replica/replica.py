"""One replica of one partition: its role, and the requests that it takes in that role.

    role      while the controller says            takes
    waiting   nothing yet, or that nobody leads    nothing
    leading   this replica leads                   appends, fetches, pulls
    following another one leads                    pushes

What must stay true:
- The role is that of the newest assignment: the highest (leader epoch, partition epoch, metadata version). An older
  one, or one from before this incarnation was registered, changes nothing (rules 7, 13).
- A replica that learns of a higher epoch from another replica stops leading, until the controller has told it as well
  (rule 13). The other one has to be one that the controller has named, with its incarnation, on an internal stream
  (rule 33). A client's word changes nothing.
  To keep the epoch in memory is enough. It was committed before anybody heard of it, so before a later process
  registers. That process obeys only assignments that name its own incarnation, so none of a lower epoch (rules 6, 7).
- Nothing is asked of a log that has gone offline; the replica has failed then, and ends.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request
from raylog.actors.protocol.control_messages import NO_LEADER, Assign, ReplicaAddress, ReplicaMarks
from raylog.actors.protocol.replication_messages import (
    NO_EPOCH,
    Append,
    AppendTransactional,
    DeleteRecords,
    Fetch,
    FindEpochEnd,
    ListOffset,
    ListOpenTransactions,
    Pull,
    PullInstead,
    Push,
    StopFollowing,
    SuspectBatch,
    WriteMarker,
)
from raylog.actors.replica.damage_care import DamageCare
from raylog.actors.replica.early_requests import EarlyRequests
from raylog.actors.replica.follower import FollowerRole
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.leader import LeaderRole
from raylog.actors.replica.leader_streams import LeaderStreams
from raylog.actors.replica.reads import LeaderReads
from raylog.actors.replica.rules.replication import RecordedPartition, check_epoch
from raylog.config import NO_LIMIT, TopicConfig
from raylog.errors import NotLeader, RaylogError, StaleIncarnation
from raylog.storage.log.job import StepJob

_RETRY_MS: Final = 500
_TRIES: Final = 3
_log = logging.getLogger(__name__)


class Replica:
    """A replica in whatever role its broker assigns to it.

    `care` looks at what is found damaged. `streams` are those of its host to leaders.
    """

    def __init__(self, hosted: HostedLog, care: DamageCare, streams: LeaderStreams) -> None:
        self._hosted = hosted
        self._log = hosted.log
        self._care = care
        self._streams = streams
        self._role: LeaderRole | FollowerRole | None = None
        self._assigned: Assign | None = None
        self._known_epoch = hosted.log.epochs.latest
        self._in_vain = NO_EPOCH, 0  # an epoch that it could not begin to lead, and how often it has tried
        self._is_writing_settings = False
        self._is_preparing = False  # the disk is being told what has to be on it before a role
        self._early = EarlyRequests(hosted.start)
        self._ended = False
        self._handlers: Dispatch[Callable[[Request, Any], Answer | Awaitable[Answer]]] = Dispatch({
            Append: self._append,
            AppendTransactional: self._append_transactional,
            WriteMarker: self._write_marker,
            Push: self._push,
            Pull: self._pull,
            Fetch: self._fetch,
            ListOpenTransactions: self._list_open_transactions,
            ListOffset: self._list_offset,
            FindEpochEnd: self._find_epoch_end,
            DeleteRecords: self._delete_records,
            PullInstead: self._pull_instead,
            StopFollowing: self._stop_following,
            SuspectBatch: self._suspect,
        })

    # --- being asked ---

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        """Answer what clients and other replicas ask of this partition."""
        if self._early.is_open and (held := self._early.hold(request)) is not None:
            return held
        return self._handle_now(request)

    def _handle_now(self, request: Request) -> Answer | Awaitable[Answer]:
        handler = self._handlers.handler_of(request.message)
        try:
            return handler(request, request.message)
        finally:
            if self._log.offline_because is not None:
                self._hosted.check_offline()

    @property
    def reads(self) -> LeaderReads | None:
        """The reads of its log while it leads."""
        return self._role.reads if isinstance(self._role, LeaderRole) else None

    def _leader(self) -> LeaderRole:
        if type(self._role) is LeaderRole:
            return self._role
        name, assigned = self._hosted.name, self._assigned
        leader = NO_LEADER if assigned is None or assigned.leader == self._hosted.me[0] else assigned.leader
        raise NotLeader(name.topic, name.partition, leader, self._known_epoch)

    def _append(self, request: Request, message: Append) -> Answer | Awaitable[Answer]:
        return self._leader().append(request, message)

    def _append_transactional(self, request: Request, message: AppendTransactional) -> Answer | Awaitable[Answer]:
        return self._leader().append_transactional(request, message)

    def _write_marker(self, _: Request, message: WriteMarker) -> Answer | Awaitable[Answer]:
        return self._leader().write_marker(message)

    def _fetch(self, request: Request, message: Fetch) -> Answer | Awaitable[Answer]:
        return self._leader().reads.fetch(request.stream, message)

    def _list_open_transactions(self, _: Request, __: ListOpenTransactions) -> Answer:
        return self._leader().open_transactions()

    def _list_offset(self, _: Request, message: ListOffset) -> Answer | Awaitable[Answer]:
        return self._leader().reads.list_offset(message)

    def _find_epoch_end(self, _: Request, message: FindEpochEnd) -> Answer | Awaitable[Answer]:
        return self._leader().reads.find_epoch_end(message)

    def _delete_records(self, _: Request, message: DeleteRecords) -> Answer | Awaitable[Answer]:
        return self._leader().delete_records(message)

    def _pull(self, request: Request, message: Pull) -> Answer | Awaitable[Answer]:
        if self._is_replica(message.broker_id, message.incarnation):
            self._learn(message.leader_epoch)
        return self._leader().pull(request, message)

    def _is_replica(self, broker_id: int, incarnation: int) -> bool:
        """Whether the controller has told of exactly this one: nobody else is believed in an epoch (rule 13).

        A follower that is newer than this replica's assignment has to pull again; its epoch comes from the broker too.
        """
        told = () if self._assigned is None else self._assigned.replicas
        return any((each.broker_id, each.incarnation) == (broker_id, incarnation) for each in told)

    def _push(self, request: Request, message: Push) -> Answer | Awaitable[Answer]:
        check_epoch(message.leader_epoch, self._known_epoch)
        if type(self._role) is FollowerRole and self._role.epoch == message.leader_epoch:
            return self._role.push(request, message)
        name = self._hosted.name
        raise NotLeader(name.topic, name.partition, NO_LEADER, self._known_epoch)

    def _suspect(self, _: Request, message: SuspectBatch) -> Awaitable[Answer]:
        if message.leader_epoch != NO_EPOCH:
            check_epoch(message.leader_epoch, self._leader().epoch)
        return self._care.suspect(message.offset)

    def _pull_instead(self, _: Request, message: PullInstead) -> Answer:
        if isinstance(self._role, FollowerRole) and self._role.epoch == message.leader_epoch:
            self._role.pull_instead(message)
        return None

    def _stop_following(self, request: Request, message: StopFollowing) -> Answer:
        if isinstance(self._role, LeaderRole):
            self._role.stop_following(request, message)
        return None

    # --- roles ---

    def assign(self, assigned: Assign) -> None:
        """Obey what the controller has decided, in whatever order that arrives."""
        if self._is_over or not self._is_news(assigned):
            return
        self._hosted.changed()
        self._assigned = assigned
        self._known_epoch = max(self._known_epoch, assigned.leader_epoch)
        self._settle(assigned)

    def _settle(self, assigned: Assign) -> None:
        """Obey the newest assignment: at once, or when the disk has what it asks for."""
        if self._is_preparing:
            return
        try:
            start = self._hosted.log.plan_role_start(self._epoch_to_begin(assigned))
            if not start.has_work:
                self._obey(assigned)
                return
        except RaylogError as error:
            self._could_not_obey(assigned, error)
            return
        if self._role is not None and self._role.epoch != assigned.leader_epoch:
            self._end_role()
        self._is_preparing = True
        if assigned.leader == self._hosted.me[0]:
            self._early.begin()
        self._hosted.start(self._prepare(assigned, start))

    def _epoch_to_begin(self, assigned: Assign) -> int | None:
        return assigned.leader_epoch if assigned.leader == self._hosted.me[0] else None

    async def _prepare(self, assigned: Assign, start: StepJob) -> None:
        """Wait for the disk beside the loop: other replicas of the host go on (rule 35)."""
        failure: RaylogError | None = None
        try:
            await self._hosted.carry_out_all(start)
        except RaylogError as error:
            failure = error
        self._is_preparing = False
        newest = self._assigned or assigned
        if newest.leader_epoch >= self._known_epoch and not self._is_over:
            if failure is not None and newest is assigned:
                self._could_not_obey(assigned, failure)
            else:
                self._settle(newest)
        if not self._is_preparing:
            self._early.release(self._handle_now)

    def _could_not_obey(self, assigned: Assign, error: RaylogError) -> None:
        self._hosted.check_offline()
        _log.error("%s: broker %d cannot take its role yet: %s", self._hosted.name, self._hosted.me[0], error)
        self._end_role()
        if self._lets_others_lead(assigned):
            self._hosted.fail(error)
            return
        self._hosted.timers.after(_RETRY_MS, lambda: self._try_again(assigned))

    def _lets_others_lead(self, assigned: Assign) -> bool:
        """Whether it has tried to lead often enough, and others could.

        It may not append before its epoch is on disk (rule 8), say because that is full. Nobody else leads before the
        controller hears of it, and the end of this replica tells it.
        """
        if assigned.leader != self._hosted.me[0] or len(assigned.isr) < 2:
            return False
        epoch, tries = self._in_vain
        self._in_vain = assigned.leader_epoch, tries + 1 if epoch == assigned.leader_epoch else 1
        return self._in_vain[1] > _TRIES

    def _is_news(self, assigned: Assign) -> bool:
        broker_id, incarnation = self._hosted.me
        registered = next((each.incarnation for each in assigned.replicas if each.broker_id == broker_id), None)
        if registered != incarnation:
            if registered is not None and registered > incarnation:
                name = self._hosted.name
                self._hosted.fail(
                    StaleIncarnation(name.topic, name.partition, broker_id, incarnation, registered)
                )
            return False
        if assigned.leader_epoch < self._known_epoch:
            return False
        return self._assigned is None or _age(assigned) > _age(self._assigned)

    def _try_again(self, assigned: Assign) -> None:
        if assigned is self._assigned:
            self._assigned = None
            self.assign(assigned)

    def _obey(self, assigned: Assign) -> None:
        self._take_settings(assigned)
        recorded = _recorded(assigned)
        if assigned.leader == self._hosted.me[0]:
            self._lead(recorded)
        elif assigned.leader == NO_LEADER:
            self._end_role()
        else:
            leader = next(each for each in assigned.replicas if each.broker_id == assigned.leader)
            in_sync = self._hosted.me in assigned.isr
            rate = NO_LIMIT if in_sync else assigned.catch_up_rate
            self._follow(assigned.leader_epoch, leader, rate, assigned.unclean_epoch)

    def _take_settings(self, assigned: Assign) -> None:
        """Write down changed settings beside the role: a disk without room is no reason to give that up (rule 4)."""
        changed = TopicConfig.parse(dict(assigned.settings)) != self._hosted.log.config
        if changed and not self._is_writing_settings:
            self._is_writing_settings = True
            self._hosted.start(self._write_settings(assigned))

    async def _write_settings(self, assigned: Assign) -> None:
        """Take them over once they are on disk, and obey again by them: a leader may have to flush now."""
        try:
            await self._hosted.carry_out(self._hosted.log.plan_settings(dict(assigned.settings)))
        except RaylogError as error:
            self._hosted.check_offline()
            _log.warning("%s: it goes on with the settings that it has: %s", self._hosted.name, error)
            self._hosted.timers.after(_RETRY_MS, lambda: self._try_again(assigned))
            return
        finally:
            self._is_writing_settings = False
        self._hosted.changed()
        self._hosted.settings_changed()
        newest = self._assigned
        if newest is not None and newest.leader_epoch >= self._known_epoch and not self._is_over:
            self._settle(newest)

    @property
    def _is_over(self) -> bool:
        return self._ended or self._hosted.failed.done()

    def _lead(self, recorded: RecordedPartition) -> None:
        if isinstance(self._role, LeaderRole) and self._role.epoch == recorded.leader_epoch:
            self._role.record(recorded)
            return
        self._end_role()
        self._role = LeaderRole(self._hosted, recorded, self._learn)
        self._hosted.is_leading = True

    def _follow(self, leader_epoch: int, leader: ReplicaAddress, catch_up_rate: int, unclean_epoch: int) -> None:
        role = self._role
        if isinstance(role, FollowerRole) and role.epoch == leader_epoch and role.leader == leader:
            role.catch_up_rate = catch_up_rate
            return
        self._end_role()
        self._role = FollowerRole(self._hosted, leader_epoch, leader, self._streams, catch_up_rate, unclean_epoch)

    def _learn(self, leader_epoch: int) -> None:
        """A replica knows of this epoch, so the controller has made it durable (rule 13)."""
        if leader_epoch > self._known_epoch:
            level = logging.INFO if self._known_epoch == NO_EPOCH else logging.WARNING  # a new one hears of the first
            _log.log(
                level, "%s: broker %d hears of epoch %d and stops what it did in epoch %d.",
                self._hosted.name, self._hosted.me[0], leader_epoch, self._known_epoch,
            )  # fmt: skip
            self._known_epoch = leader_epoch
            self._end_role()

    def _end_role(self) -> None:
        role, self._role = self._role, None
        self._hosted.is_leading = False
        self._hosted.changed()
        if isinstance(role, LeaderRole):
            leader = NO_LEADER if self._assigned is None else self._assigned.leader
            role.end(leader, self._known_epoch)
        elif role is not None:
            role.end()

    # --- telling, ending ---

    def look(self) -> float | None:
        """Look at its followers, if it leads. Return the seconds to the next look; None: there is nothing to expect."""
        return self._role.look() if isinstance(self._role, LeaderRole) else None

    def marks(self, room: str) -> ReplicaMarks:
        """Return how far its log reaches, and in which role. `room` of its host."""
        log, name = self._hosted.log, self._hosted.name
        role = {LeaderRole: "leader", FollowerRole: "follower"}.get(type(self._role), "waiting")
        return ReplicaMarks(
            name.topic_id, name.partition, self._hosted.me[1],
            role, log.log_start_offset, log.high_watermark, log.log_end_offset, log.size_bytes,
            self._hosted.room.is_full, room, self._hosted.last_epoch,
        )  # fmt: skip

    def end(self) -> None:
        """Play no role any more."""
        self._ended = True
        self._end_role()
        self._early.release(self._handle_now)


def _age(assigned: Assign) -> tuple[int, int, int]:
    return assigned.leader_epoch, assigned.partition_epoch, assigned.metadata_version


def _recorded(assigned: Assign) -> RecordedPartition:
    incarnations = tuple((each.broker_id, each.incarnation) for each in assigned.replicas)
    return RecordedPartition(
        assigned.leader_epoch, assigned.partition_epoch, assigned.isr, incarnations, assigned.min_insync
    )
