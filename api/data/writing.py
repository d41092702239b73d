"""`raylog.data.write`: a Dataset into a topic, all of it or nothing.

    tasks ──write, each in a transaction of its own──► works ──► family.commit(exactly these)
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from raylog.api.admin.cluster import Cluster
from raylog.api.data.reading import check_count, cluster_of
from raylog.api.data.rules.record_columns import RecordColumns
from raylog.api.data.topic_sink import TopicSink, check_dataset
from raylog.api.jobs.decisions import abort, commit

if TYPE_CHECKING:
    import ray.data

_KEEP_MS: Final = 3600 * 1000  # in which the decision about a write may be asked for again
_ONLY: Final = 0  # the number of its batch


def write(
    dataset: ray.data.Dataset,
    topic: str,
    *,
    key: str | None = None,
    value: str | Sequence[str] = "value",
    partition: str | None = None,
    headers: str | None = None,
    exactly_once: bool = True,
    concurrency: int | None = None,
    cluster: Cluster | str | None = None,
    **options: Any,
) -> int:
    """Write all rows; how many they were. Readers of committed records see them all once this returns, or none.

        raylog.data.write(scores, "scores", key="user", value=["user", "score"], compression_type="lz4")

    `key`, `value`, `partition` and `headers` name columns. Keys and values are bytes or text; several columns of
    `value`, or a struct, become a JSON object; a null value is a tombstone. Options are those of producers. Until it
    returns, or its process has been dead for transaction_timeout_ms, readers of committed records wait behind it.
    With `exactly_once=False` rows are seen as they are written, and those of a task that is tried again twice.

    InvalidConfig, UnknownConfig, UnknownTopic: nothing was tried. DatasetNotWritable, RowNotWritable and others of a
    task, FamilyFenced, TransactionAborted: nothing counts. TransactionPending: the outcome is not known.
    """
    columns = RecordColumns.choose(value, key, partition, headers)
    check_count("concurrency", concurrency)
    check_dataset(dataset)
    sink = TopicSink.choose(cluster_of(cluster), topic, columns, concurrency, options)
    if not exactly_once:
        return sink.write(dataset, None)[1]
    with sink.family(f"data-write-{uuid.uuid4()}", _KEEP_MS) as family:
        try:
            works, count = sink.write(dataset, family.ticket)
        except BaseException:
            abort(family)
            raise
        if works:
            commit(family, _ONLY, works)
        return count
