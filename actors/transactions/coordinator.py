"""A transaction coordinator: transactional ids and what becomes of them, kept in a partition of `__transaction_state`.

    request ──rules/transaction.py──► record ──appended, applied──► committed ──► answer
                                        └─ prepared ──► `TransactionMarkers` ──► complete ──► answers

What must stay true:
- Decisions rest on all that was appended before them; nothing of one gets out before it is committed. If an append
  fails, this coordinator is over, and its state with it.
- PREPARE is committed before the first marker is sent, and markers are sent until all are acknowledged (rule 21). The
  transactions that an earlier coordinator has prepared are finished by the next.
- A partition is sent no marker only where its topic is gone for good, by the controller's word. That a broker does not
  know a topic means nothing: it may know less than others.
- A marker is written once: a leader that has it, or has seen a later epoch of its producer, says so, and that counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Final

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.background import BackgroundTasks, TimerHandle, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import TRANSACTIONS, Reading
from raylog.actors.kernel.stream_interface import Answer, Dispatch, Request, Response
from raylog.actors.link.cluster_link import ClusterLink, PartitionLeader
from raylog.actors.link.questions import until_answered
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, check_transactional_id, group_hash
from raylog.actors.protocol.replication_messages import WriteMarker
from raylog.actors.protocol.transaction_messages import (
    AbortTransaction,
    AddGroup,
    AddPartition,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    ProducerInitialised,
    ResolveStaged,
    TransactionEnded,
    TransactionPartition,
    TransactionRecord,
    TransactionsListed,
)
from raylog.actors.transactions.families import TransactionFamilies
from raylog.actors.transactions.rules.family import split_member
from raylog.actors.transactions.rules.transaction import (
    FAMILY_PREFIX,
    LAST_EPOCH,
    TRANSACTION_PREFIX,
    Phase,
    aborted_by_operator,
    add_group,
    add_partition,
    broken_invariants,
    completed,
    end_transaction,
    identity_in_use,
    init_producer,
    is_expired,
    read_entry,
    timed_out,
    transaction_entry,
    transaction_key,
)
from raylog.errors import (
    ConcurrentTransaction,
    CoordinatorFenced,
    FrameInvalid,
    InvalidTransactionState,
    MessageUnknown,
    NotLeader,
    ProducerFenced,
    RaylogError,
    StaleTransaction,
    TransactionTooLarge,
    UnknownTransactionalId,
)

_FORGET_MS: Final = 7 * 24 * 3600 * 1000
_SWEEP_SECONDS: Final = 3600.0
_PRODUCER_ID_SECONDS: Final = 10.0
_TRY_AGAIN_MS: Final = 1000
_NOT_NEEDED: Final = -1
_MOST_BYTES: Final = 900_000  # of one transaction; all that becomes of it later is hardly longer
_ASK_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_NO_EPOCH: Final = -1

_log = logging.getLogger(__name__)


class TransactionCoordinator:
    """A `CoordinatorCore`."""

    def __init__(self, env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> None:
        self._env = env
        self._log = log
        self._partition = str(spec.partition)
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(self._broke)
        self._timers = Timers(self._loop)
        self._markers = TransactionMarkers(link, spec.term)
        self._known: dict[str, TransactionRecord] = {}
        self._deadlines: dict[str, TimerHandle] = {}
        self._ending: dict[str, asyncio.Future[TransactionRecord]] = {}  # those that are prepared
        self._fresh: list[int] = []  # producer ids that no producer has
        self._families = TransactionFamilies(self, log)
        self._handlers: Dispatch[Callable[[Any], Awaitable[Answer]]] = Dispatch({
            **self._families.handlers,
            InitProducer: self._init,
            AddPartition: partial(self._add, add_partition),
            AddGroup: partial(self._add, add_group),
            EndTransaction: self._end,
            AbortTransaction: self._abort,
            DescribeTransaction: self._describe,
            ListTransactions: self._list,
        })

    async def start(self) -> None:
        end = await self._log.claim()
        async for entries in self._log.replay(end):
            for key, value, offset in entries:
                try:
                    self._restore(key, value)
                except (FrameInvalid, MessageUnknown) as error:
                    self._log.cannot_read(offset, error)
        for record in list(self._known.values()):
            self.follow_up(record)
        self._tasks.start(self._sweep())

    def handle(self, request: Request) -> Awaitable[Answer]:
        return self._answered(self._handlers.handler_of(request.message), request.message)

    async def _answered(self, handler: Callable[[Any], Awaitable[Answer]], message: Message) -> Answer:
        """A refusal too rests on what was decided before it, and that may never be committed."""
        try:
            return await handler(message)
        except RaylogError:
            await self._log.settled()
            raise

    def readings(self) -> Iterator[Reading]:
        phases = Counter(record.phase for record in self._known.values())
        for phase in Phase:
            yield Reading(TRANSACTIONS, (self._partition, phase.name.lower()), phases[phase])

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file, once `start` is over."""
        for name, record in self._known.items():
            for broken in broken_invariants(record):
                yield f"{name}: {broken}"
            if name != record.transactional_id or Phase(record.phase).is_prepared != (name in self._ending):
                ending = "is" if name in self._ending else "is not"
                yield f"{record.transactional_id}, kept as {name}, {Phase(record.phase).name}, {ending} being ended"
            if record.producer_id in self._fresh:
                yield f"{name} has producer id {record.producer_id}, which nobody should have yet"
        if not self._ending.keys() <= self._known.keys():
            yield f"{list(self._ending)} are being ended, and are not all known"

    async def close(self) -> None:
        self._timers.close()
        await self._tasks.close()

    # --- requests -------------------------------------------------------------------------------------------------

    async def _init(self, asked: InitProducer) -> Answer:
        _check_no_member(asked.transactional_id)
        check_transactional_id(asked.transactional_id)
        fresh = await self._fresh_id(asked.transactional_id)
        initialised = init_producer(self._known.get(asked.transactional_id), asked, self.now_ms(), fresh)
        self._used(initialised.record.producer_id)
        await self._change(initialised.record)
        if initialised.answer is None:
            raise ConcurrentTransaction(asked.transactional_id)
        answer: ProducerInitialised = initialised.answer
        return Response(answer)

    async def _add(self, decide: Callable[..., TransactionRecord | None], asked: Any) -> Answer:
        record = decide(self._known.get(asked.transactional_id), asked, self.now_ms())
        if record is None:
            await self._log.settled()  # what put it there may not be committed yet
        else:
            _check_size(record)
            await self._change(record)
        return None

    async def _end(self, asked: EndTransaction) -> Answer:
        _check_no_member(asked.transactional_id)
        fresh = await self._fresh_id(asked.transactional_id)
        ended = end_transaction(self._known.get(asked.transactional_id), asked, self.now_ms(), fresh)
        if ended.record is not None:
            self._used(ended.record.producer_id)
            await self._change(ended.record)
        if ended.answer is not None:
            await self._log.settled()
            return Response(ended.answer)
        done = await self.until_ended(asked.transactional_id)
        return Response(TransactionEnded(done.producer_id, done.epoch))

    async def _abort(self, asked: AbortTransaction) -> Answer:
        fresh = await self._fresh_id(asked.transactional_id)
        known = self._known.get(asked.transactional_id)
        record = aborted_by_operator(known, asked, self.now_ms(), fresh)
        if record is not None:
            self._used(record.producer_id)
            _log.warning("The transaction of %r is aborted by an operator.", asked.transactional_id)
            await self._change(record)
        await self.until_ended(asked.transactional_id)
        await self._log.settled()
        return None

    async def _describe(self, asked: DescribeTransaction) -> Answer:
        known = self._known.get(asked.transactional_id)
        if known is None:
            raise UnknownTransactionalId(asked.transactional_id)
        await self._log.settled()
        return Response(known)

    async def _list(self, _: ListTransactions) -> Answer:
        found = [
            (each.transactional_id, *identity_in_use(each), each.phase, _begun(each))
            for each in self._known.values()
        ]
        await self._log.settled()
        return Response(TransactionsListed(tuple(sorted(found))))

    # --- changing -------------------------------------------------------------------------------------------------

    def _restore(self, key: bytes, value: bytes | None) -> None:
        if key.startswith(FAMILY_PREFIX):
            self._families.restore(key, value)
            return
        name, record = read_entry(TransactionRecord, TRANSACTION_PREFIX, key, value)
        if record is None:
            self._forget(name)
            return
        self._known[name] = record
        self._families.has_member(name)

    async def _change(self, record: TransactionRecord) -> None:
        """Applied at once, since the next decision rests on it; done once it is committed."""
        self.apply(record)
        await self._log.append([transaction_entry(record)])
        self.follow_up(record)

    def apply(self, record: TransactionRecord) -> None:
        """Take in a record. The caller appends it in the same step, waits for the commit, and follows it up."""
        self._known[record.transactional_id] = record
        if Phase(record.phase).is_prepared:
            self._ending[record.transactional_id] = self._loop.create_future()

    def follow_up(self, record: TransactionRecord) -> None:
        """Do what a committed record asks for: send its markers, or watch its time."""
        name = record.transactional_id
        deadline = self._deadlines.pop(name, None)
        if deadline is not None:
            self._timers.cancel(deadline)
        if Phase(record.phase).is_prepared:
            self._ending.setdefault(name, self._loop.create_future())
            self._tasks.start(self._finish(record))
        elif record.phase == Phase.ONGOING:
            begun_ms = max(record.begun_ms, self._families.heard_ms(name))
            left_ms = max(0, begun_ms + record.timeout_ms - self.now_ms())
            self._deadlines[name] = self._timers.after(left_ms, partial(self._look_at_time, name))

    async def _finish(self, record: TransactionRecord) -> None:
        name = record.transactional_id
        await self._markers.write_all(record)
        done = completed(record, self.now_ms())
        waiting = self._ending.pop(name)
        # What comes next is appended behind this record; so nothing of it counts before this one is committed.
        self._known[name] = done
        waiting.set_result(done)
        # Until it is committed, the next coordinator tells all once more what they know. So it may wait for company:
        # mostly for the first partition of the next transaction.
        await self._log.append([transaction_entry(done)], is_urgent=False)

    def known(self, name: str) -> TransactionRecord | None:
        return self._known.get(name)

    async def until_ended(self, name: str) -> TransactionRecord:
        waiting = self._ending.get(name)
        if waiting is None:
            return self._known[name]
        return await asyncio.shield(waiting)

    def _look_at_time(self, name: str) -> None:
        self._deadlines.pop(name, None)
        self._tasks.start(self._time_out(name))

    async def _time_out(self, name: str) -> None:
        try:
            fresh = await self._fresh_id(name)
        except RaylogError as error:  # no controller, say: nothing to end all the other transactions for
            _log.warning("The transaction of %r is over its time, and cannot be aborted yet: %s", name, error)
            self._deadlines.setdefault(name, self._timers.after(_TRY_AGAIN_MS, partial(self._look_at_time, name)))
            return
        known = self._known.get(name)
        record = None if known is None else timed_out(known, self.now_ms(), fresh, self._families.heard_ms(name))
        if record is not None:
            self._used(record.producer_id)
            _log.warning("The transaction of %r was open for more than %d ms: aborted.", name, record.timeout_ms)
            await self._change(record)
        elif known is not None and known.phase == Phase.ONGOING:
            self.follow_up(known)  # its driver lives, or the wall clock went back

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            now_ms = self.now_ms()
            # No waiting in between: an id that is used again meanwhile would be forgotten all the same.
            for entry in self._families.expire():
                self._log.append([entry])
            for name in [name for name, each in self._known.items() if self._is_over(each, now_ms)]:
                self._forget(name)
                self._log.append([(transaction_key(name), None)])
            await self._log.settled()

    def _is_over(self, known: TransactionRecord, now_ms: int) -> bool:
        after_ms = 0 if self._families.is_left_behind(known.transactional_id) else _FORGET_MS
        return is_expired(known, now_ms, after_ms)

    def _forget(self, name: str) -> None:
        self._known.pop(name, None)
        self._families.lost_member(name)

    # --- producer ids ---------------------------------------------------------------------------------------------

    async def _fresh_id(self, name: str) -> int:
        """A producer id that no producer has. It stays fresh until it is used. Most decisions need none."""
        known = self._known.get(name)
        if known is not None and known.epoch < LAST_EPOCH:
            return _NOT_NEEDED
        if not self._fresh:
            self._fresh.append(await self._link.producer_id(_PRODUCER_ID_SECONDS))
        return self._fresh[-1]

    async def take_fresh_id(self) -> int:
        """A producer id that no producer has, nor will have."""
        if not self._fresh:
            self._fresh.append(await self._link.producer_id(_PRODUCER_ID_SECONDS))
        return self._fresh.pop()

    def _used(self, producer_id: int) -> None:
        if producer_id in self._fresh:
            self._fresh.remove(producer_id)

    def now_ms(self) -> int:
        return self._env.wall_ms()

    def _broke(self, error: BaseException) -> None:
        if isinstance(error, RaylogError) and self._log.ended.done():
            return
        _log.critical("A transaction coordinator met a mistake and ends.", exc_info=error)
        self._log.give_up(error)


def make(env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> TransactionCoordinator:
    """Make the core of a coordinator of transactions, for `coordinators/host.py`."""
    return TransactionCoordinator(env, spec, log, link)


def _check_size(record: TransactionRecord) -> None:
    """Refuse what does not fit into a batch of the log: such a record would end this coordinator, and the next."""
    size = len(transaction_entry(record)[1] or b"")
    if size > _MOST_BYTES:
        raise TransactionTooLarge(record.transactional_id, size, _MOST_BYTES)


def _begun(record: TransactionRecord) -> int:
    return record.begun_ms if record.phase == Phase.ONGOING else -1


def _check_no_member(name: str) -> None:
    if split_member(name) is not None:
        raise InvalidTransactionState(f"{name!r} is a member of a family: only the family's driver ends it.")


class TransactionMarkers:
    """`term`: of the coordinator that they are from."""

    def __init__(self, link: ClusterLink, term: int) -> None:
        self._link = link
        self._term = term

    async def write_all(self, record: TransactionRecord) -> None:
        """Done once all have it, however long that takes."""
        work = [self._write(record, partition) for partition in record.partitions]
        work += [self._resolve(record, group_hash(group)) for group in record.groups]
        await asyncio.gather(*work)

    async def _write(self, record: TransactionRecord, partition: TransactionPartition) -> None:
        attempt = partial(self._try_to_write, record, partition)
        await self._until_done(attempt, f"{_name(partition)} has no marker yet", self._link.changed)

    async def _resolve(self, record: TransactionRecord, hashed: int) -> None:
        """Resolve what all groups of one coordinator of groups have staged."""
        attempt = partial(self._try_to_resolve, record, hashed)
        not_yet = f"Staged offsets of producer {record.marker_id} are not resolved yet"
        await self._until_done(attempt, not_yet, asyncio.sleep)

    async def _until_done(
        self, attempt: Callable[[float], Awaitable[None]], not_yet: str, pause: Callable[[float], Awaitable[object]]
    ) -> None:
        await until_answered(
            attempt,
            Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._link.env.random),
            is_final=_never,
            failed=partial(_log.info, "%s: %s", not_yet),
            pause=pause,
        )

    async def _try_to_write(self, record: TransactionRecord, partition: TransactionPartition, _: float) -> None:
        """Have a marker written to this partition, unless it is gone or has a later word. Or raise why not yet."""
        commits = record.phase == Phase.PREPARE_COMMIT
        message = WriteMarker(record.marker_id, record.marker_epoch, self._term, commits, int(1000 * _ASK_SECONDS))
        leader = self._leader(partition)
        if leader is None:
            if await self._link.is_deleted(partition[1], _ASK_SECONDS):
                _log.info("%s is gone, and needs no marker of producer %d.", _name(partition), record.marker_id)
                return
            await self._learn(partition[0])
        if leader is None or not leader.endpoints:
            raise NotLeader(partition[0], partition[2], NO_LEADER, _NO_EPOCH)
        try:
            await self._link.ask(leader, message, expect=Done, timeout=_ASK_SECONDS)
        except (CoordinatorFenced, ProducerFenced) as error:
            _log.info("%s has a later word on producer %d: %s", _name(partition), record.marker_id, error)

    def _leader(self, partition: TransactionPartition) -> PartitionLeader | None:
        """The leader of the partition. None: not known here, perhaps not yet, or an earlier one has its name."""
        topic, topic_id, number = partition
        view = self._link.topic(topic)
        if view is None or view.topic_id != topic_id or number >= len(view.partitions):
            return None
        return view.partitions[number]

    async def _learn(self, topic: str) -> None:
        if self._link.topic(topic) is None:
            await self._link.find_topic(topic, _ASK_SECONDS)
        else:
            await self._link.refresh(_ASK_SECONDS)

    async def _try_to_resolve(self, record: TransactionRecord, hashed: int, _: float) -> None:
        """Tell one coordinator of groups how the transaction ended. It knows transactions by their own epochs."""
        commits = record.phase == Phase.PREPARE_COMMIT
        message = ResolveStaged(record.marker_id, record.marker_epoch - 1, self._term, commits)
        try:
            place = await self._link.find_coordinator(OFFSETS_TOPIC, hashed, _ASK_SECONDS)
            await self._link.ask(place, message, expect=Done, timeout=_ASK_SECONDS)
        except (CoordinatorFenced, StaleTransaction) as error:
            _log.info("A group coordinator has a later word on producer %d: %s", record.marker_id, error)


def _name(partition: TransactionPartition) -> str:
    return f"{partition[0]}-{partition[2]}"


def _never(_: RaylogError) -> bool:
    return False
