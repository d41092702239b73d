"""A classic group: Kafka's older protocol of membership, in which one of the members assigns the partitions.

    Empty ──a member joins──► PreparingRebalance ──all have joined, or time is up──► CompletingRebalance
      ▲                          ▲     │                                               │            │
      └────── nobody is left ────┼─────┘        a member joins, leaves or is silent    │   the leader has synced
                                 ├─────────────────────────────────────────────────────┘            ▼
                                 └──────────────────────────────────────────────────────────────  Stable

    in state               JoinGroup                  SyncGroup             Heartbeat   a member's commit
    PreparingRebalance     held                       refused               refused     taken
    CompletingRebalance    answered again, or anew    held for the leader   taken       refused
    Stable                 answered again, or anew    answered              taken       taken

"Refused" is RebalanceInProgress. "Anew": where the member has changed, and in Stable if it is the leader.

What must stay true:
- Each rebalance ends in a higher generation. Nobody syncs, is heard, or commits in another one (rule 24). A generation
  that another coordinator gives again was not written, so nobody had an assignment in it.
- A JoinGroup that is held is answered when its rebalance ends, or when its member is removed; so is a SyncGroup.
- `value` has all that another coordinator needs for going on: it is written before anybody hears of an assignment.
- A member that says nothing costs its group one time-out. It costs other groups nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from math import inf
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.protocol.messages import Message
from raylog.errors import (
    FencedInstance,
    FencedMember,
    GroupFull,
    InconsistentGroupProtocol,
    InvalidRequest,
    RaylogError,
    RebalanceInProgress,
    UnknownMember,
)
from raylog.groups.records.classic_messages import (
    NO_GENERATION,
    ClassicJoined,
    ClassicSynced,
    ClassicValue,
    JoinClassic,
    LeaveClassic,
    SyncClassic,
)
from raylog.groups.records.settings import GroupSettings
from raylog.groups.rules.classic_member import ClassicMember, size_of, voted
from raylog.groups.rules.membership import Moment

EMPTY: Final = "Empty"
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"

_REPLACED_KEPT: Final = 100


class Waiting(Enum):
    """The kinds of requests that are held."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"


class HeldRequest(NamedTuple):
    """A request that waits for its answer."""

    member: str
    kind: Waiting


Released: TypeAlias = "Message | RaylogError"


class ClassicGroup:
    """One classic group. Synchronous, and without a clock."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.group_id = group_id
        self._settings = settings
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol = ""
        self.leader = ""
        self.members: dict[str, ClassicMember] = {}
        self.is_changed = False  # `value` is to be written
        self._instances: dict[str, str] = {}  # member ids
        self._replaced: dict[str, str] = {}  # instance ids, by the member id of who had it before
        self._pending: dict[str, int] = {}  # ids that were given out, and until when they are kept
        self._joining: dict[str, None] = {}  # members whose JoinGroup is held
        self._syncing: dict[str, None] = {}  # members whose SyncGroup is held
        self._unsynced: dict[str, None] = {}  # members that have heard of the generation, and are to sync
        self._support: Counter[str] = Counter()  # protocols, by how many members know them
        self.most_bytes = settings.max_all_classic_bytes  # that it may hold
        self._bytes = 0
        self._assigned_bytes = 0
        self._settles_at_ms = 0  # before that a rebalance waits for more members
        self._deadline_ms = 0  # of the joins, or of the syncs
        self._session_ends_ms: float = inf  # no session ends before that
        self._released: dict[HeldRequest, Released] = {}

    @property
    def is_active(self) -> bool:
        """Whether anybody is in it, or about to be."""
        return bool(self.members or self._pending)

    @property
    def promised(self) -> int:
        """Return how many ids were given out, where that is all that the group is there for."""
        return 0 if self.members else len(self._pending)

    def forget_promised(self) -> None:
        """Forget the ids that were given out. A member that comes with one is told to begin anew."""
        self._pending.clear()

    @property
    def size(self) -> int:
        """Return how many bytes its members say and are given."""
        return self._bytes + self._assigned_bytes

    def take_released(self) -> dict[HeldRequest, Released]:
        """Return the answers to held requests that have come about since this was last asked."""
        released, self._released = self._released, {}
        return released

    def value(self, at: Moment) -> ClassicValue:
        """Return what is to be written of the group."""
        members = tuple(each.fields(self.protocol) for each in self.members.values())
        empty_since = -1 if members else at.wall_ms
        return ClassicValue(self.generation, self.protocol_type, self.protocol, self.leader, members, empty_since)

    def restore(self, value: ClassicValue, at: Moment) -> None:
        """Become what was written. Sessions begin anew."""
        self.generation, self.protocol_type = value.generation, value.protocol_type
        self.protocol, self.leader = value.protocol, value.leader
        self.state = STABLE if value.members else EMPTY
        for member_id, instance, client_id, host, session_ms, rebalance_ms, metadata, assignment in value.members:
            protocols = ((value.protocol, metadata),)
            said = JoinClassic(
                self.group_id, member_id, "", False, instance, client_id, host, session_ms, rebalance_ms,
                value.protocol_type, protocols,
            )  # fmt: skip
            member = ClassicMember(member_id, said, at)
            member.assignment = assignment
            self._assigned_bytes += len(assignment)
            self._put(member)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        held = {*self._joining, *self._syncing, *self._unsynced}
        if not held <= self.members.keys():
            yield f"{sorted(held - self.members.keys())} are waited for, and are no members"
        if self._joining and self.state != PREPARING:
            yield f"joins are held in state {self.state}"
        if self._syncing and self.state != COMPLETING:
            yield f"syncs are held in state {self.state}"
        if self.state == EMPTY and self.members:
            yield f"it has members in state {self.state}"
        if self.state in (COMPLETING, STABLE) and self.leader not in self.members:
            yield f"its leader {self.leader!r} is no member"
        if self._instances != {each.instance: each.member_id for each in self.members.values() if each.instance}:
            yield f"its static members are listed as {self._instances}"
        if self._bytes != sum(map(size_of, self.members.values())):
            yield f"{self._bytes} bytes are counted"
        if any(ends < self._session_ends_ms for _, ends in self._sessions()):
            yield f"a session ends before {self._session_ends_ms}"

    # --- JoinGroup ------------------------------------------------------------------------------------------------

    def join(self, request: JoinClassic, at: Moment) -> ClassicJoined | None:
        """Let a member join. None: the request is held.

        UnknownMember, FencedInstance, GroupFull, InconsistentGroupProtocol, InvalidRequest.
        """
        if request.member in self._pending and not request.instance:
            self._check_fits(request, None)
            del self._pending[request.member]
            self._add(request.member, request, at)
            return None
        if request.member:
            member = self._member(request.member, request.instance)
            self._check_fits(request, member)
            return self._join_again(member, request, at)
        if request.new_member in self.members or request.new_member in self._pending:
            raise InvalidRequest(f"Group {self.group_id!r} has a member {request.new_member[:40]!r} already.")
        holder = self.members.get(self._instances.get(request.instance, ""))
        self._check_fits(request, holder)
        if holder is not None:
            return self._replace(holder, request, at)
        if len(self.members) + len(self._pending) >= self._settings.max_members:
            raise GroupFull(self.group_id, self._settings.max_members)
        if request.needs_id and not request.instance:
            self._pending[request.new_member] = at.now_ms + request.session_timeout_ms
            return ClassicJoined(NO_GENERATION, "", "", "", request.new_member, (), False)
        self._add(request.new_member, request, at)
        return None

    def _check_fits(self, request: JoinClassic, before: ClassicMember | None) -> None:
        names = dict.fromkeys(name for name, _ in request.protocols)
        others = len(self.members) - (before is not None)
        if not request.protocol_type or not names:
            raise InconsistentGroupProtocol(self.group_id, "a member names its protocol type, and its protocols")
        if self.members and request.protocol_type != self.protocol_type:
            raise InconsistentGroupProtocol(
                self.group_id, f"its protocol type is {self.protocol_type!r}, not {request.protocol_type[:40]!r}"
            )
        if others:
            known = dict.fromkeys(name for name, _ in before.protocols) if before is not None else {}
            if not any(self._support[name] - (name in known) == others for name in names):
                raise InconsistentGroupProtocol(self.group_id, "its members have no protocol in common with this one")
        held = self._bytes - (0 if before is None else size_of(before))
        joining = ClassicMember(request.member or request.new_member, request, Moment(0, 0))
        if held + size_of(joining) > min(self.most_bytes, self._settings.max_classic_bytes):
            raise GroupFull(self.group_id, len(self.members))

    def _add(self, member_id: str, request: JoinClassic, at: Moment) -> None:
        if not self.members:
            self.protocol_type = request.protocol_type
        self._put(ClassicMember(member_id, request, at))
        if self.state == PREPARING and self._settles_at_ms > at.now_ms:
            self._settles_at_ms = at.now_ms + self._settings.initial_rebalance_delay_ms
        self._hold_join(member_id, at)

    def _join_again(self, member: ClassicMember, request: JoinClassic, at: Moment) -> ClassicJoined | None:
        is_same = member.protocols == request.protocols
        self._take_off(member)
        member.take(request, at)
        self._put(member)
        is_leader = member.member_id == self.leader
        if is_same and (self.state == COMPLETING or (self.state == STABLE and not is_leader)):
            return self._joined(member)
        self._hold_join(member.member_id, at)
        return None

    def _replace(self, before: ClassicMember, request: JoinClassic, at: Moment) -> ClassicJoined | None:
        """Give a static member's place to the process that has come in its place."""
        is_same = before.metadata(self.protocol) == dict(request.protocols).get(self.protocol)
        member = ClassicMember(request.new_member, request, at)
        member.assignment = before.assignment
        was_leader = self.leader == before.member_id
        fenced = FencedInstance(self.group_id, before.instance, before.member_id, self.generation, 0)
        self._forget(before, fenced)
        self._replaced[before.member_id] = before.instance
        while len(self._replaced) > _REPLACED_KEPT:
            del self._replaced[next(iter(self._replaced))]
        self._put(member)
        if was_leader:
            self.leader = member.member_id
        if self.state == STABLE and is_same:
            self.is_changed = True
            return self._joined(member, keeps_assignment=True)
        self._hold_join(member.member_id, at)
        return None

    def _hold_join(self, member_id: str, at: Moment) -> None:
        self._released.pop(HeldRequest(member_id, Waiting.JOIN), None)
        self._joining[member_id] = None
        self._prepare(at)

    def _joined(self, member: ClassicMember, *, keeps_assignment: bool = False) -> ClassicJoined:
        told = self.members.values() if member.member_id == self.leader else ()
        members = tuple((each.member_id, each.instance, each.metadata(self.protocol)) for each in told)
        return ClassicJoined(
            self.generation, self.protocol_type, self.protocol, self.leader, member.member_id, members,
            keeps_assignment,
        )  # fmt: skip

    # --- a rebalance ----------------------------------------------------------------------------------------------

    def _prepare(self, at: Moment) -> None:
        """Begin a rebalance, unless one is waiting for its members already; and end it if all have joined."""
        if self.state != PREPARING:
            first = self._settings.initial_rebalance_delay_ms if self.state == EMPTY else 0
            self._settles_at_ms = at.now_ms + first
            for member_id in list(self._syncing):
                self._release(member_id, Waiting.SYNC, RebalanceInProgress(self.group_id, self.generation))
            self._unsynced.clear()
            self.state = PREPARING
            self._deadline_ms = at.now_ms + self._longest_ms()
        self._complete_if_all_joined(at)

    def _longest_ms(self) -> int:
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def _complete_if_all_joined(self, at: Moment) -> None:
        if self.state != PREPARING or self._pending or len(self._joining) < len(self.members):
            return
        if not self.members or self._settles_at_ms <= at.now_ms:
            self._complete(at)

    def _complete(self, at: Moment) -> None:
        """End the joins: the group has a new generation, and its leader is to assign."""
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader, self.is_changed = EMPTY, "", "", True
            return
        self.state = COMPLETING
        self.protocol = voted(self.members.values(), self._support)
        if self.leader not in self._joining:
            self.leader = next(iter(self._joining))
        self._deadline_ms = at.now_ms + self._longest_ms()
        self._assigned_bytes = 0
        for member in self.members.values():
            member.assignment = b""
            member.heard_at_ms = at.now_ms
        self._unsynced = dict(self._joining)
        for member_id in list(self._joining):
            self._release(member_id, Waiting.JOIN, self._joined(self.members[member_id]))

    # --- SyncGroup, Heartbeat, LeaveGroup, commits ----------------------------------------------------------------

    def sync(self, request: SyncClassic, at: Moment) -> ClassicSynced | None:
        """Return the member's assignment. None: the request is held until the leader has brought it.

        UnknownMember, FencedInstance, FencedMember, InconsistentGroupProtocol, RebalanceInProgress.
        """
        member = self._present(request.member, request.instance, request.generation)
        for what, said, current in (
            ("protocol type", request.protocol_type, self.protocol_type),
            ("protocol", request.protocol, self.protocol),
        ):
            if said and said != current:
                raise InconsistentGroupProtocol(self.group_id, f"its {what} is {current!r}, not {said[:40]!r}")
        if self.state == PREPARING:
            raise RebalanceInProgress(self.group_id, self.generation)
        member.heard_at_ms = at.now_ms
        if self.state == COMPLETING:
            if request.member != self.leader:
                self._released.pop(HeldRequest(request.member, Waiting.SYNC), None)
                self._syncing[request.member] = None
                self._unsynced.pop(request.member, None)
                return None
            self._assign(request)
        self._unsynced.pop(request.member, None)
        return self._synced(member)

    def _assign(self, request: SyncClassic) -> None:
        given = dict(request.assignments)
        size = sum(map(len, given.values()))
        said = sum(size_of(each, self.protocol) for each in self.members.values())
        most = max(0, min(self._settings.max_classic_record_bytes - said, self.most_bytes - self._bytes))
        if size > most:
            raise InvalidRequest(f"The assignments of group {self.group_id!r} have {size} bytes; the most is {most}.")
        self._assigned_bytes = size
        for member in self.members.values():
            member.assignment = given.get(member.member_id, b"")
        self.state, self.is_changed = STABLE, True
        for member_id in list(self._syncing):
            self._release(member_id, Waiting.SYNC, self._synced(self.members[member_id]))

    def _synced(self, member: ClassicMember) -> ClassicSynced:
        return ClassicSynced(self.protocol_type, self.protocol, member.assignment)

    def heartbeat(self, member_id: str, instance: str, generation: int, at: Moment) -> None:
        """Hear of a member. UnknownMember, FencedInstance, FencedMember; RebalanceInProgress: it is to join again."""
        self._present(member_id, instance, generation).heard_at_ms = at.now_ms
        if self.state == PREPARING:
            raise RebalanceInProgress(self.group_id, self.generation)

    def check_commit(self, member_id: str, instance: str, generation: int, at: Moment) -> None:
        """Raise what keeps a member from committing: as `heartbeat`, but between its join and its sync it may not."""
        self._present(member_id, instance, generation).heard_at_ms = at.now_ms
        if self.state == COMPLETING:
            raise RebalanceInProgress(self.group_id, self.generation)

    def leave(self, request: LeaveClassic, at: Moment) -> None:
        """Take a member out. UnknownMember, FencedInstance."""
        if request.member in self._pending:
            del self._pending[request.member]
            self._complete_if_all_joined(at)
            return
        member_id = request.member or self._instances.get(request.instance, "")
        self._remove([self._member(member_id, request.instance)], "it left", at)

    def remove_all(self, reason: str, at: Moment) -> None:
        """Take all members out."""
        self._pending.clear()
        self._remove(list(self.members.values()), reason, at)

    def _present(self, member_id: str, instance: str, generation: int) -> ClassicMember:
        member = self._member(member_id, instance)
        if generation != self.generation:
            raise FencedMember(self.group_id, member_id, generation, self.generation, -1)
        return member

    def _member(self, member_id: str, instance: str) -> ClassicMember:
        """Raises UnknownMember, FencedInstance."""
        member = self.members.get(member_id)
        holder = self._instances.get(instance, member_id) if instance else member_id
        fenced = self._replaced.get(member_id, "") if member is None else ""
        if holder != member_id or fenced:
            raise FencedInstance(self.group_id, instance or fenced, member_id, self.generation, 0)
        if member is None or (instance and member.instance != instance):
            raise UnknownMember(self.group_id, member_id, -1, -1, "it has not joined, or was removed")
        return member

    # --- time -----------------------------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """Return when `look` has something to do at the earliest; None: nothing is waited for."""
        if not self.is_active:
            return None
        moments: list[float] = [*self._pending.values(), self._session_ends_ms]
        if self.state == PREPARING:
            all_joined = len(self._joining) == len(self.members) and not self._pending
            # Newcomers put off the end of the joins, but not for ever.
            moments.append(min(self._settles_at_ms, self._deadline_ms) if all_joined else self._deadline_ms)
        elif self._unsynced:
            moments.append(self._deadline_ms)
        return int(min(moments))

    def expels(self, at: Moment) -> bool:
        """Whether `look` would remove a member now."""
        is_waiting = self.state == PREPARING and len(self._joining) < len(self.members)
        if (is_waiting or self._unsynced) and self._deadline_ms <= at.now_ms:
            return True
        return any(ends <= at.now_ms for _, ends in self._sessions())

    def look(self, at: Moment) -> None:
        """Remove the members whose time is over, and end a rebalance whose time is up."""
        self._pending = {each: until for each, until in self._pending.items() if until > at.now_ms}
        silent = [member for member, ends in self._sessions() if ends <= at.now_ms]
        self._remove(silent, "it was silent for longer than its session", at)
        if self.state == PREPARING:
            if self._deadline_ms <= at.now_ms:
                self._give_up_waiting(at)
        elif self._unsynced and self._deadline_ms <= at.now_ms:
            slow = [self.members[each] for each in self._unsynced]
            self._remove(slow, "it did not ask for its assignment", at)
        self._complete_if_all_joined(at)
        self._session_ends_ms = min((ends for _, ends in self._sessions()), default=inf)

    def _sessions(self) -> Iterator[tuple[ClassicMember, int]]:
        """Yield each member that has to be heard, and until when."""
        for member in self.members.values():
            if member.member_id not in self._joining and member.member_id not in self._syncing:
                yield member, member.session_ends_ms

    def _give_up_waiting(self, at: Moment) -> None:
        """Go on without those that have not joined. Static members stay until their sessions are over."""
        absent = [each for each in self.members.values() if each.member_id not in self._joining]
        self._pending.clear()
        self._remove([each for each in absent if not each.instance], "it did not join again in time", at)
        if self.state != PREPARING:
            return
        if self._joining:
            self._complete(at)
        else:
            self._deadline_ms = at.now_ms + self._longest_ms()

    # --- members --------------------------------------------------------------------------------------------------

    def _remove(self, members: list[ClassicMember], reason: str, at: Moment) -> None:
        for member in members:
            self._forget(member, UnknownMember(self.group_id, member.member_id, self.generation, -1, reason))
        if members:
            self._prepare(at)

    def _put(self, member: ClassicMember) -> None:
        self.members[member.member_id] = member
        self._support.update({name for name, _ in member.protocols})
        self._bytes += size_of(member)
        self._session_ends_ms = min(self._session_ends_ms, member.session_ends_ms)
        if member.instance:
            self._instances[member.instance] = member.member_id

    def _take_off(self, member: ClassicMember) -> None:
        for name in {name for name, _ in member.protocols}:  # and not all that others know: it may be far more
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]
        self._bytes -= size_of(member)

    def _forget(self, member: ClassicMember, error: RaylogError) -> None:
        """Take a member out, and answer what it waits for with this error."""
        self._take_off(member)
        del self.members[member.member_id]
        if member.instance:
            del self._instances[member.instance]
        self._unsynced.pop(member.member_id, None)
        for kind, waiting in ((Waiting.JOIN, self._joining), (Waiting.SYNC, self._syncing)):
            if member.member_id in waiting:
                self._release(member.member_id, kind, error)

    def _release(self, member_id: str, kind: Waiting, answer: Released) -> None:
        waiting = self._joining if kind is Waiting.JOIN else self._syncing
        del waiting[member_id]
        if member_id in self.members:
            self._session_ends_ms = min(self._session_ends_ms, self.members[member_id].session_ends_ms)
        self._released[HeldRequest(member_id, kind)] = answer
