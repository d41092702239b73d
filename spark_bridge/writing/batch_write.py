"""`spark_bridge.write`: a DataFrame into topics, all of it or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from raylog.errors import InvalidConfig
from raylog.spark_bridge.writing.family_write import GroupOffsets, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from raylog.api.admin.cluster import Cluster
    from raylog.api.connection.records import TopicPartition

_KEEP_MS: Final = 3600 * 1000  # in which the decision about a single write may be asked for again
_ONLY: Final = 0


class Written(NamedTuple):
    """`is_new` False: an earlier run has committed this version, and nothing was written."""

    row_count: int
    is_new: bool


def write(
    frame: DataFrame,
    topic: str | None = None,
    *,
    cluster: Cluster | str | None = None,
    txnAppId: str | None = None,  # noqa: N803 (Delta's names, which users of foreachBatch know)
    txnVersion: int | None = None,  # noqa: N803
    groupId: str | None = None,  # noqa: N803
    groupOffsets: Mapping[TopicPartition, int] | None = None,  # noqa: N803
    **options: object,
) -> Written:
    """Write all rows in one transaction: readers of committed records see them all once this returns, or none.

        spark_bridge.write(frame, topic="counts", compression_type="lz4")

    Columns are those of Spark's Kafka sink: `value`, and if they are there `key`, `topic`, `partition`, `headers`.
    Options are those of producers. With `txnAppId` and `txnVersion` a version is written once, however often this is
    called with it, as in `foreachBatch`: the name of the job, and a number that goes up. With `groupId` and
    `groupOffsets` these offsets of the group are committed with the rows, both or neither; the group has no members
    meanwhile. Until it returns, or its process has been dead for transaction_timeout_ms, readers of committed records
    wait behind it.

    FrameNotWritable, UnknownSparkOption, InvalidConfig, UnknownTopic: nothing was tried. RowNotWritable and others of
    a task, FamilyFenced, TransactionAborted: nothing counts. TransactionPending: the outcome is not known.
    """
    if (txnAppId is None) != (txnVersion is None):
        raise InvalidConfig("txnVersion", txnVersion, "to be given together with txnAppId")
    if txnVersion is not None and (type(txnVersion) is not int or txnVersion < 0):
        raise InvalidConfig("txnVersion", txnVersion, "a whole number from 0 on")
    if (groupId is None) != (groupOffsets is None):
        raise InvalidConfig("groupOffsets", groupOffsets, "to be given together with groupId")
    offsets = None if groupId is None or groupOffsets is None else GroupOffsets(groupId, groupOffsets)
    sink = Sink.parse(topic, cluster, options)
    sink.columns(frame)
    batch = _ONLY if txnVersion is None else txnVersion
    is_once = txnAppId is not None
    with sink.family(txnAppId or f"spark-write-{uuid.uuid4()}", None if is_once else _KEEP_MS) as family:
        if batch <= family.last_batch:
            return Written(0, False)
        return Written(sink.write(frame, family, batch, offsets), True)
