"""Batches that wait at a leader before they are appended, each behind the earlier ones of its producer.

`PayloadChecks`: in a compacted topic each record has to have a key, so a batch is looked into first.

    small by what it says of itself    looked at on the loop, at once
    larger, or it does not say         looked at beside the loop; the producer's later batches wait behind it

`LeaderTransactions`: a batch is appended once its partition belongs to its transaction; and how a transaction ended.

    first batch of a transaction ──parked──► AddPartition at its coordinator ──durable──► appended, and all behind it
    batch of an open transaction ───────────────────────────────────────────────────────► appended

What must stay true:
- No more than `QUICK_BYTES` are unpacked on the loop, and no more than 16 × `max.message.bytes` anywhere (rule 34).
- A producer's batches are appended in the order in which they came, whichever of them are parked here (rule 28). A
  producer without an id is told by its stream.
- After the wait everything is asked again that was asked before it: who leads, and in which epoch (rule 28).
- How many bytes are parked to be looked into has a bound, over all streams (rule 31).
- Nothing of a transaction is appended before its coordinator has this partition on its list (rules 20, 21). What is
  parked waits outside of the append queue, and holds up nothing but its own producer.
- A transaction's batches begin at sequence 0 here; so where the first was refused, those behind it are too.
- A marker ends the transaction of the epoch below its own, and is written once. One that comes again, perhaps while the
  next transaction is open under the marker's epoch, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, pass_on
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.actors.protocol.replication_messages import AppendTransactional, OpenTransactions, WriteMarker
from raylog.actors.protocol.transaction_messages import AddPartition
from raylog.actors.replica.hosted_log import HostedLog
from raylog.config import MIB
from raylog.errors import (
    ConcurrentTransaction,
    CoordinatorFenced,
    InvalidRequest,
    OutOfOrderSequence,
    PayloadTooLarge,
    ProducerFenced,
    RaylogError,
    TooManyBytesInFlight,
)
from raylog.storage.format.batch_codec import QUICK_BYTES, opens_quickly, unpack_limit
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import HEADER_BYTES, BatchHeader, Bytes, is_transactional, read_header
from raylog.storage.log.appends import check_new_batch, check_payload

FIRST_SEQUENCE: Final = 0
_FIND_SECONDS: Final = 5.0
_ASK_SECONDS: Final = 5.0
MAX_PARKED_BYTES: Final = 32 * MIB  # one batch alone may be larger

AppendCall: TypeAlias = Callable[[], Answer | LaterAnswer]


class _Append(Protocol):
    def __call__(self, checked: BatchHeader | None) -> Answer | LaterAnswer: ...


class _Unchecked:
    """One batch that is looked at, or waits for those before it of its producer."""

    __slots__ = ("append", "check", "owed", "payload")

    def __init__(self, payload: Bytes, append: _Append, check: Callable[[], BatchHeader] | None) -> None:
        self.payload = payload
        self.append = append
        self.check = check  # None: nothing has to be unpacked
        self.owed = LaterAnswer()


class PayloadChecks:
    """Batches to be looked into. `check_leading` raises once this replica does not lead any more."""

    def __init__(self, hosted: HostedLog, check_leading: Callable[[], None]) -> None:
        self._hosted = hosted
        self._check_leading = check_leading
        self.parked: dict[object, list[_Unchecked]] = {}  # by producer, in their order; the first is being looked at
        self._bytes = 0

    def append(self, request: Request, append: _Append) -> Answer | LaterAnswer:
        """Let `append` be called as soon as the batch may be taken in, in its producer's order.

        Appends to topics that are not compacted need not come here while nothing is `parked`.
        NullKey, PayloadTooLarge, TooManyBytesInFlight, and whatever else is wrong with a batch.
        """
        producer, batch = _producer(request), request.payload
        config, now_ms = self._hosted.log.config, self._hosted.env.wall_ms()
        if producer in self.parked:
            check = partial(check_new_batch, batch, config, now_ms, control=False) if config.is_compacted else None
            return self._park(producer, batch, append, check)
        if not config.is_compacted:
            return append(None)
        header = check_new_batch(batch, config, now_ms, control=False, unpacks=False)
        if self._is_fine(header, batch):
            return append(header)
        return self._park(producer, batch, append, partial(_opened, header, batch, unpack_limit(config)))

    def _is_fine(self, header: BatchHeader, batch: Bytes) -> bool:
        """Whether the batch may be appended at once. False: it is too large to open on the loop. NullKey."""
        if not opens_quickly(header, batch):
            return False
        try:
            check_payload(header, batch, QUICK_BYTES)
        except PayloadTooLarge:
            return False  # it holds more than it says
        return True

    def _park(
        self, producer: object, batch: Bytes, append: _Append, check: Callable[[], BatchHeader] | None
    ) -> LaterAnswer:
        if self._bytes and self._bytes + len(batch) > MAX_PARKED_BYTES:
            raise TooManyBytesInFlight(len(batch), self._bytes, MAX_PARKED_BYTES)
        parked = _Unchecked(batch, append, check)
        self._bytes += len(batch)
        queue = self.parked.setdefault(producer, [])
        queue.append(parked)
        if len(queue) == 1:
            self._hosted.start(self._work_off(producer, queue))
        return parked.owed

    async def _work_off(self, producer: object, queue: list[_Unchecked]) -> None:
        try:
            while queue:
                await self._take_in(queue[0])
                self._bytes -= len(queue.pop(0).payload)
        finally:
            del self.parked[producer]

    async def _take_in(self, parked: _Unchecked) -> None:
        try:
            checked = None
            if parked.check is not None:
                async with self._hosted.opening:
                    checked = await self._hosted.off_loop(parked.check)
            self._check_leading()
            answer = parked.append(checked)
        except RaylogError as error:
            parked.owed.fail(error)
            return
        finally:
            self._hosted.check_offline()
        pass_on(answer, parked.owed)


def _opened(header: BatchHeader, batch: Bytes, limit: int) -> BatchHeader:
    check_payload(header, batch, limit)
    return header


def _producer(request: Request) -> object:
    """Name the producer whose order counts. A batch that is no batch is refused in its turn."""
    batch = request.payload
    if len(batch) >= HEADER_BYTES:
        header = read_header(batch)
        if header.has_producer:
            return header.producer_id
    return request.stream


class _Waiting(NamedTuple):
    sequence: int
    append: AppendCall
    owed: LaterAnswer


class _Parked:
    """Batches of one producer that wait for its coordinator's word, in their order."""

    __slots__ = ("epoch", "waiting")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.waiting: list[_Waiting] = []


class LeaderTransactions:
    """Transactions at one leader. A batch waits until its partition is on the coordinator's list."""

    def __init__(self, hosted: HostedLog) -> None:
        self._hosted = hosted
        self._parked: dict[int, _Parked] = {}  # by producer id

    def append(self, batch: Bytes, message: AppendTransactional, append: AppendCall) -> Answer | LaterAnswer:
        """Let `append` be called as soon as the batch belongs to its transaction.

        ProducerFenced, OutOfOrderSequence, ConcurrentTransaction, InvalidRequest, and what the coordinator answers.
        """
        if not is_transactional(batch):
            raise InvalidRequest("Only transactional batches belong to a transaction.")
        header = read_header(batch)
        parked = self._parked.get(header.producer_id)
        if parked is None:
            if self._is_open(header):
                return append()
            if header.base_sequence != FIRST_SEQUENCE:
                raise OutOfOrderSequence(header.producer_id, header.base_sequence, FIRST_SEQUENCE)
            parked = self._parked[header.producer_id] = _Parked(header.producer_epoch)
            self._hosted.start(self._join_and_append(header, message))
        elif parked.epoch != header.producer_epoch:
            raise ConcurrentTransaction(message.transactional_id)
        owed = LaterAnswer()
        parked.waiting.append(_Waiting(header.base_sequence, append, owed))
        return owed

    def marker(self, message: WriteMarker, now_ms: int) -> bytearray | None:
        """The batch to be appended; None: it is in the log already. CoordinatorFenced."""
        known = self._hosted.log.producers.get(message.producer_id)
        if known is not None and message.producer_epoch <= known.epoch:
            if message.coordinator_epoch < known.coordinator_epoch:
                raise CoordinatorFenced(message.producer_id, message.coordinator_epoch, known.coordinator_epoch)
            return None
        kind = MarkerType.COMMIT if message.commits else MarkerType.ABORT
        marker = Marker(kind, message.coordinator_epoch)
        return encode_marker(marker, message.producer_id, message.producer_epoch, now_ms)

    def still_open(self) -> OpenTransactions:
        producers = self._hosted.log.producers
        found = []
        for producer_id, first_offset in producers.open_transactions().items():
            known = producers.get(producer_id)
            assert known is not None
            found.append((producer_id, known.epoch, first_offset, known.last_seen_ms, known.coordinator_epoch))
        return OpenTransactions(tuple(found))

    def end(self, error: RaylogError) -> None:
        """Refuse all that is parked: this replica does not lead any more."""
        parked, self._parked = self._parked, {}
        for each in parked.values():
            _fail(each, error)

    def _is_open(self, header: BatchHeader) -> bool:
        known = self._hosted.log.producers.get(header.producer_id)
        if known is not None and known.epoch > header.producer_epoch:
            raise ProducerFenced(header.producer_id, header.producer_epoch, known.epoch)
        return known is not None and known.epoch == header.producer_epoch and known.transaction_start is not None

    async def _join_and_append(self, header: BatchHeader, message: AppendTransactional) -> None:
        name = self._hosted.name
        asked = AddPartition(
            message.transactional_id, header.producer_id, header.producer_epoch,
            name.topic, name.topic_id, name.partition, message.together,
        )  # fmt: skip
        refused: RaylogError | None = None
        try:
            await self._hosted.calls.join(asked)
        except RaylogError as error:
            refused = error
        parked = self._parked.pop(header.producer_id, None)  # None: another replica leads by now
        if parked is None:
            return
        if refused is not None:
            _fail(parked, refused)
        else:
            _append_all(parked, header.producer_id)


def _append_all(parked: _Parked, producer_id: int) -> None:
    """Append them in order. Behind a refused one nothing is taken: of a new producer the log would take any sequence.

    Each is told its own refusal: one that was appended before is not taken for lost, nor cut because of another's size.
    """
    refusal: RaylogError | None = None
    refused_sequence = -1
    for sequence, append, owed in parked.waiting:
        if refusal is not None and sequence > refused_sequence:
            is_it = refusal if refusal.retriable else OutOfOrderSequence(producer_id, sequence, refused_sequence)
            _refuse(owed, is_it)
            continue
        try:
            appended = append()
        except RaylogError as error:
            refusal, refused_sequence = error, sequence
            _refuse(owed, error)
        else:
            pass_on(appended, owed)


def _fail(parked: _Parked, error: RaylogError) -> None:
    for each in parked.waiting:
        _refuse(each.owed, error)


def _refuse(owed: LaterAnswer, error: BaseException) -> None:
    if not owed.done():
        owed.fail(error)


class TransactionJoins:
    """The way to transaction coordinators: one link of the process, made when it is first needed.

    `broker` is the one beside it.
    """

    def __init__(self, env: Environment, broker: Endpoint, node_id: str) -> None:
        self._env = env
        self._broker = broker
        self._node_id = node_id
        self._link: ClusterLink | None = None

    async def add(self, asked: AddPartition) -> None:
        """Add a partition to a transaction. CoordinatorNotReady, StreamError, and what the coordinator raises."""
        if self._link is None:
            self._link = ClusterLink(self._env, [self._broker], self._node_id)
        hashed = coordinator_hash(asked.transactional_id)
        place = await self._link.find_coordinator(TRANSACTIONS_TOPIC, hashed, _FIND_SECONDS)
        await self._link.ask(place, asked, expect=Done, timeout=_ASK_SECONDS)

    async def close(self) -> None:
        if self._link is not None:
            await self._link.close()
