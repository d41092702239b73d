"""Producers and consumers in a user's process."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class ClientError(RaylogError):
    """A producer or a consumer could not do what it was asked to."""


class ClusterUnreachable(ClientError):
    """No broker of the cluster answers."""

    retriable = True
    advice = "Look whether its brokers run (`raylog.start` on their nodes) and whether this host reaches them."

    addresses: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"No broker at {self.addresses} answered within {self.timeout_ms} ms: {self.reason}."


class BufferFull(ClientError):
    """A producer holds as much as it may of what is not delivered yet; this record was not taken."""

    retriable = True
    advice = "The cluster is slower than this program: send less, or raise buffer_memory or max_block_ms."

    size: int
    limit: int
    waited_ms: int

    def describe(self) -> str:
        return f"No room for {self.size} bytes in a buffer of {self.limit} within {self.waited_ms} ms."


class DeliveryTimedOut(ClientError):
    """A record was not acknowledged within `delivery_timeout_ms`."""

    advice = "Look what keeps the leader from answering; where records may be late, raise delivery_timeout_ms."

    topic: str
    partition: int
    timeout_ms: int
    may_be_written: bool  # rule 27: it was sent, and nobody knows what became of it
    reason: str

    def describe(self) -> str:
        outcome = "it may be written all the same" if self.may_be_written else "it was not written"
        name = f"{self.topic}-{self.partition}"
        return f"A record for {name} was not acknowledged within {self.timeout_ms} ms, {outcome}: {self.reason}."


class RecordTooLarge(ClientError):
    """One record alone is over a limit; it was not sent."""

    advice = "Send less in one record, or raise max_request_size of the producer and max.message.bytes of the topic."

    topic: str
    size: int
    limit: int

    def describe(self) -> str:
        return f"A record of {self.size} bytes for {self.topic!r} is over the limit of {self.limit}."


class BulkSendFailed(ClientError):
    """Not all records of one `send_many` or `send_arrow` were delivered. The first failure is the `cause`."""

    advice = "Those that failed are in the future's `failures()`, with the reason of each batch."

    topic: str
    failed: int
    count: int
    cause: str

    def describe(self) -> str:
        return f"{self.failed} of {self.count} records for {self.topic!r} were not delivered: {self.cause}"


class ResultNotReady(ClientError, TimeoutError):
    """Something that goes on in the background was not done within the time that the caller was ready to wait."""

    retriable = True
    advice = "It goes on: wait again, or longer."

    what: str
    timeout_ms: int

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class WaitRefused(ClientError):
    """A callback asked to wait on the very thread that would bring about what it waits for."""

    advice = "Callbacks of futures and interceptors run there: wait in another thread, or add a callback."

    def describe(self) -> str:
        return "Waiting on the background thread of raylog's clients would never end."


class ProducerClosed(ClientError):
    """The producer takes no more records."""

    advice = "It was closed, or its process is ending: make a new one."

    reason: str = "it was closed"

    def describe(self) -> str:
        return f"This producer takes no more records: {self.reason}."


class ConsumerClosed(ClientError):
    """The consumer reads no more."""

    advice = "It was closed, or its process is ending: make a new one."

    reason: str = "it was closed"

    def describe(self) -> str:
        return f"This consumer reads no more: {self.reason}."


class ConsumerInUse(ClientError):
    """Two threads poll one consumer."""

    advice = (
        "Give each thread a consumer of its own, with one group_id, or use a ParallelConsumer. "
        "Only `wakeup` and `close` may come from another thread."
    )

    polling: str
    refused: str

    def describe(self) -> str:
        return f"Thread {self.refused!r} polls a consumer that thread {self.polling!r} is polling."


class ClientOfOtherProcess(ClientError):
    """A producer or consumer was carried through a fork; its connections stayed behind."""

    advice = "Make producers and consumers in the process that uses them."

    what: str
    made_in: int
    used_in: int

    def describe(self) -> str:
        return f"This {self.what} was made in process {self.made_in} and is used in its child {self.used_in}."


class NoOffsetReset(ClientError):
    """A consumer has no position, or one that is not in the log, and `auto_offset_reset` is none."""

    advice = "Seek to an offset that is there, or set auto_offset_reset to earliest or latest."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"There is nowhere to go on in {self.topic}-{self.partition}: {self.reason}."


class LogTruncated(ClientError):
    """What was read last is not in the log any more: the logs diverged before the position (KIP-320)."""

    advice = "Records were lost, by an unclean election or with their disks. Seek to safe_offset to go on from there."

    topic: str
    partition: int
    offset: int
    safe_offset: int

    def describe(self) -> str:
        name = f"{self.topic}-{self.partition}"
        return f"The log of {name} is another one than was read up to {self.offset}: they part at {self.safe_offset}."


class RecordNotSerialized(ClientError, TypeError):
    """What was given to send cannot be made bytes."""

    advice = "A serializer takes what is sent, and returns bytes or None."

    topic: str
    field: str  # key, value
    serializer: str
    reason: str

    def describe(self) -> str:
        what = f"The {self.field} of a record for {self.topic!r}"
        return f"{what}: {self.field}_serializer {self.serializer} {self.reason}."


class RecordUnreadable(ClientError):
    """A record that was fetched cannot be handed out: its bytes are damaged, or a deserializer refused them."""

    advice = "Nothing after it was handed out: seek to next_offset to go on without it."

    topic: str
    partition: int
    offset: int
    next_offset: int
    reason: str

    def describe(self) -> str:
        return f"The record at offset {self.offset} of {self.topic}-{self.partition} cannot be read: {self.reason}"


class NotAssigned(ClientError):
    """A call names a partition that this consumer does not read."""

    advice = "Give it to assign first, or subscribe to its topic."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"This consumer does not read {self.topic}-{self.partition}."


class ConflictingSubscription(ClientError):
    """What a consumer is to read contradicts itself, or is nothing at all."""

    advice = "Name topics (to the constructor or to subscribe), or name partitions to assign; not both."

    reason: str

    def describe(self) -> str:
        return f"This consumer cannot read like that: {self.reason}."


class GroupRequired(ClientError):
    """A consumer was asked for what only a member of a group can do."""

    advice = "Make the consumer with a group_id."

    what: str

    def describe(self) -> str:
        return f"{self.what} needs a consumer group, and this consumer has no group_id."


class ListenerFailed(ClientError):
    """A rebalance listener raised; what it was told of has happened all the same."""

    advice = "Look at the cause. The consumer goes on with the next poll."

    group: str
    member: str
    epoch: int
    call: str
    partitions: str
    elapsed_ms: int  # in the listener
    reason: str

    def describe(self) -> str:
        return (
            f"{self.call} of the listener of group {self.group!r} failed for {self.partitions}: {self.reason} "
            f"(member {self.member!r}, epoch {self.epoch}, after {self.elapsed_ms} ms)."
        )


class HandlerFailed(ClientError):
    """A handler of a ParallelConsumer has failed with a record as often as it may, and nothing says where to put it."""

    advice = (
        "It is not committed, and the group meets it again: mend the handler, or set dead_letter_topic, or "
        "when_exhausted='skip'."
    )

    topic: str
    partition: int
    offset: int
    attempts: int
    reason: str

    def describe(self) -> str:
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The handler failed with the record at {where} in {self.attempts} attempts: {self.reason}."


class HandlerTimedOut(ClientError):
    """A handler of a ParallelConsumer is at one record for longer than max_poll_interval_ms."""

    advice = "Close the consumer, so that another member goes on; give the handler a time-out, or raise the interval."

    group: str
    member: str
    epoch: int
    topic: str
    partition: int
    offset: int
    elapsed_ms: int

    def describe(self) -> str:
        who = f"member {self.member!r} of group {self.group!r} (epoch {self.epoch})"
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"A handler of {who} has been at the record at {where} for {self.elapsed_ms} ms."


class DeadLetterFailed(ClientError):
    """A record that its handler cannot deal with could not be put aside either."""

    advice = "It is not committed, and the group meets it again: look at the dead letter topic."

    topic: str
    partition: int
    offset: int
    dead_letter_topic: str
    reason: str

    def describe(self) -> str:
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The record at {where} could not be written to {self.dead_letter_topic!r}: {self.reason}."


class WakeupError(ClientError):
    """`wakeup` was called: the call that waited, or the next one that would wait, ends with this."""

    advice = "Nothing was lost: call again to go on, or close the consumer."

    def describe(self) -> str:
        return "The consumer was woken up."


class WorkloadFailed(ClientError):
    """A benchmark came to no figure on one of the systems it measures."""

    system: str
    reason: str

    def describe(self) -> str:
        return f"The benchmark has no figure for {self.system}: {self.reason}."
