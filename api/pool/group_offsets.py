"""Questions of a supervisor to the brokers: how far topics go, and how far their group has come. They block.

What must stay true: no failure lasts. After one the way to the brokers is found anew, since all of them may have been
started again elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.log_questions import LogQuestions
from raylog.api.jobs.rules.subscription import Subscription
from raylog.api.pool.supervisor import Offsets
from raylog.errors import RaylogError, UnknownGroup

if TYPE_CHECKING:
    from raylog.api.admin.cluster import Cluster
    from raylog.api.pool.rules.pool_options import PoolSpec

_SECONDS: Final = 10.0


class GroupOffsets:
    """Asks for one pool. `reads_committed`: what open transactions have written is not there yet."""

    def __init__(self, cluster: Cluster, spec: PoolSpec, *, reads_committed: bool) -> None:
        self._cluster, self._group = cluster, spec.group_id
        self._subscription = Subscription(topics=spec.topics)
        self._reads_committed = reads_committed
        self._questions: LogQuestions | None = None

    def look(self) -> Offsets:
        """Ask. It raises what questions to brokers raise, but not UnknownTopic: a topic that is gone is no work."""
        try:
            return self._look()
        except RaylogError:
            self._questions = None
            raise

    def _look(self) -> Offsets:
        questions = self._questions = self._questions or LogQuestions(self._cluster, self._reads_committed)
        places = questions.topics(self._subscription, all_of_them=False)
        ends = questions.offsets(dict.fromkeys(places, LATEST))
        committed = self._committed()
        fresh = [place for place in places if place not in committed]
        return Offsets(questions.offsets(dict.fromkeys(fresh, EARLIEST)), ends, committed)

    def _committed(self) -> Mapping[TopicPartition, int]:
        try:
            found = self._cluster.list_group_offsets(self._group, timeout=_SECONDS)
        except UnknownGroup:
            return {}
        return {place: each.offset for place, each in found.items()}
