"""Writes of one task of a job: it runs in a Python worker of an executor, which has no Ray.

    batches of rows ──by topic and partition──► a member of the job's family ──all delivered──► one row to the driver

What must stay true:
- A task that returns has delivered every row it was given, in a transaction of its own that is still open. Its one
  row says which. The transaction of a task that fails, or of which nobody hears, is never among those that count.
- An error that no second attempt would mend is returned, not raised: so the driver has it whole, and at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.api.jobs.row_sending import FINAL, write_in_family

SCHEMA: Final = "number int, producer_id long, epoch int, row_count long, error binary"
_ARROW: Final = pa.schema(
    [
        ("number", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("row_count", pa.int64()),
        ("error", pa.binary()),
    ]
)


class TaskReport(NamedTuple):
    """The report of a task to its driver; one that had no rows tells nothing."""

    work: FamilyWork
    row_count: int

    @classmethod
    def of_row(cls, row: Any) -> TaskReport:
        """Raises what the task could not do."""
        if row["error"] is not None:
            raise pickle.loads(bytes(row["error"]))
        return cls(FamilyWork(row["number"], row["producer_id"], row["epoch"]), row["row_count"])


@dataclass(frozen=True)
class TaskWriter:
    """Writes rows, for `mapInArrow`; `topic` None: it is a column."""

    access: ClusterAccess
    ticket: FamilyTicket
    topic: str | None
    options: Mapping[str, Any]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            written = write_in_family(self.access, self.ticket, self.topic, self.options, batches)
        except FINAL as error:
            yield _report(error=error)
            return
        if written is not None:
            work, count = written
            yield _report(*work, count)


def _report(
    number: int = -1, producer_id: int = -1, epoch: int = -1, row_count: int = 0, error: Exception | None = None
) -> pa.RecordBatch:
    values = (number, producer_id, epoch, row_count, None if error is None else pickle.dumps(error))
    return pa.RecordBatch.from_pydict(dict(zip(_ARROW.names, ([value] for value in values), strict=True)), _ARROW)
