"""Producers and consumers in a user's process."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class ClientError(RaylogError):
    """A producer or a consumer could not do what it was asked to."""


class ClusterUnreachable(ClientError):
    """No broker of the cluster answers."""

    retriable = True
    advice = "Check that its brokers run (`raylog.start` on their nodes), and that this host can reach them."

    addresses: str
    timeout_ms: int
    reason: str

    def describe(self) -> str:
        return f"No broker at {self.addresses} answered within {self.timeout_ms} ms: {self.reason}."


class BufferFull(ClientError):
    """The producer's buffer for undelivered records is full. This record was not accepted."""

    retriable = True
    advice = "The cluster is slower than this program: send less, or raise buffer_memory or max_block_ms."

    size: int
    limit: int
    waited_ms: int

    def describe(self) -> str:
        return f"No room for {self.size} bytes in a buffer of {self.limit} within {self.waited_ms} ms."


class DeliveryTimedOut(ClientError):
    """A record was not acknowledged within `delivery_timeout_ms`."""

    advice = "Find out why the leader does not answer. If records may be late, raise delivery_timeout_ms."

    topic: str
    partition: int
    timeout_ms: int
    may_be_written: bool  # rule 27: it was sent, and the outcome is unknown
    reason: str

    def describe(self) -> str:
        outcome = "it may have been written" if self.may_be_written else "it was not written"
        name = f"{self.topic}-{self.partition}"
        return f"A record for {name} was not acknowledged within {self.timeout_ms} ms, {outcome}: {self.reason}."


class RecordTooLarge(ClientError):
    """A single record is over a limit. It was not sent."""

    advice = "Send less in one record, or raise max_request_size of the producer and max.message.bytes of the topic."

    topic: str
    size: int
    limit: int

    def describe(self) -> str:
        return f"A record of {self.size} bytes for {self.topic!r} is over the limit of {self.limit}."


class BulkSendFailed(ClientError):
    """Not all records of one `send_many` or `send_arrow` were delivered. The first failure is the `cause`."""

    advice = "The future's `failures()` lists the ones that failed, with the reason of each batch."

    topic: str
    failed: int
    count: int
    cause: str

    def describe(self) -> str:
        return f"{self.failed} of {self.count} records for {self.topic!r} were not delivered: {self.cause}"


class ResultNotReady(ClientError, TimeoutError):
    """Work in the background did not end within the time that the caller was willing to wait."""

    retriable = True
    advice = "It continues: wait again, or longer."

    what: str
    timeout_ms: int

    def describe(self) -> str:
        return f"Not done within {self.timeout_ms} ms: {self.what}."


class WaitRefused(ClientError):
    """A callback tried to wait on the thread that has to produce the result."""

    advice = "Callbacks of futures and interceptors run on that thread: wait in another one, or add a callback."

    def describe(self) -> str:
        return "Waiting on the background thread of raylog's clients would never end."


class ProducerClosed(ClientError):
    """The producer takes no more records."""

    advice = "It was closed, or its process is ending: create a new one."

    reason: str = "it was closed"

    def describe(self) -> str:
        return f"This producer takes no more records: {self.reason}."


class ConsumerClosed(ClientError):
    """The consumer reads no more records."""

    advice = "It was closed, or its process is ending: create a new one."

    reason: str = "it was closed"

    def describe(self) -> str:
        return f"This consumer reads no more records: {self.reason}."


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
    """A producer or consumer was used after a fork. Its connections belong to the parent process."""

    advice = "Create producers and consumers in the process that uses them."

    what: str
    made_in: int
    used_in: int

    def describe(self) -> str:
        return f"This {self.what} was created in process {self.made_in}, but is used in its child {self.used_in}."


class NoOffsetReset(ClientError):
    """A consumer has no position, or one that is not in the log, and `auto_offset_reset` is none."""

    advice = "Seek to an offset that the log holds, or set auto_offset_reset to earliest or latest."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"The consumer has no valid position in {self.topic}-{self.partition}: {self.reason}."


class LogTruncated(ClientError):
    """Records that were read are no longer in the log: it diverged before the consumer's position (KIP-320)."""

    advice = "Records were lost by an unclean election or with their disks. Seek to safe_offset to continue."

    topic: str
    partition: int
    offset: int
    safe_offset: int

    def describe(self) -> str:
        what = f"The log of {self.topic}-{self.partition} is not the one that was read up to offset {self.offset}"
        return f"{what}: they differ from offset {self.safe_offset} on."


class RecordNotSerialized(ClientError, TypeError):
    """A key or value cannot be turned into bytes."""

    advice = "A serializer takes the key or the value that is sent, and returns bytes or None."

    topic: str
    field: str  # key, value
    serializer: str
    reason: str

    def describe(self) -> str:
        what = f"The {self.field} of a record for {self.topic!r}"
        return f"{what}: {self.field}_serializer {self.serializer} {self.reason}."


class RecordUnreadable(ClientError):
    """A fetched record cannot be returned: its bytes are damaged, or a deserializer refused them."""

    advice = "No record after it was returned: seek to next_offset to skip it."

    topic: str
    partition: int
    offset: int
    next_offset: int
    reason: str

    def describe(self) -> str:
        where = f"at offset {self.offset} of {self.topic}-{self.partition}"
        return f"The record {where} cannot be read: {self.reason.rstrip('.')}."


class NotAssigned(ClientError):
    """A call names a partition that this consumer does not read."""

    advice = "Assign it to the consumer first, or subscribe to its topic."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"This consumer does not read {self.topic}-{self.partition}."


class ConflictingSubscription(ClientError):
    """The topics and partitions that a consumer is given contradict each other, or are empty."""

    advice = "Name topics (to the constructor or to subscribe), or name partitions to assign; not both."

    reason: str

    def describe(self) -> str:
        return f"This consumer cannot read like that: {self.reason}."


class GroupRequired(ClientError):
    """A consumer without a group was asked for something that only a member of a group can do."""

    advice = "Create the consumer with a group_id."

    what: str

    def describe(self) -> str:
        return f"{self.what} needs a consumer group, and this consumer has no group_id."


class ListenerFailed(ClientError):
    """A rebalance listener raised an error. The rebalance happened nevertheless."""

    advice = "Look at the cause. The consumer continues with the next poll."

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
    """A handler of a ParallelConsumer used up its attempts on a record, and no dead letter topic is set."""

    advice = (
        "The record is not committed, so the group reads it again: fix the handler, or set dead_letter_topic or "
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
    """A handler of a ParallelConsumer has worked on one record for longer than max_poll_interval_ms."""

    advice = "Close the consumer, so that another member takes over. Limit the time of a handler, or raise the limit."

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
        return f"A handler of {who} has worked on the record at {where} for {self.elapsed_ms} ms."


class DeadLetterFailed(ClientError):
    """A record that its handler could not process could not be written to the dead letter topic either."""

    advice = "The record is not committed, so the group reads it again: check the dead letter topic."

    topic: str
    partition: int
    offset: int
    dead_letter_topic: str
    reason: str

    def describe(self) -> str:
        where = f"offset {self.offset} of {self.topic}-{self.partition}"
        return f"The record at {where} could not be written to {self.dead_letter_topic!r}: {self.reason}."


class WakeupError(ClientError):
    """`wakeup` was called: it ends the call that waits, or the next one that would wait."""

    advice = "Nothing was lost: call again to continue, or close the consumer."

    def describe(self) -> str:
        return "The consumer was woken up."


class WorkloadFailed(ClientError):
    """A benchmark got no result for one of the systems that it measures."""

    system: str
    reason: str

    def describe(self) -> str:
        return f"The benchmark has no result for {self.system}: {self.reason}."
