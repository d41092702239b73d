"""A broker tells its replicas what the controller has decided for them.

What must stay true:
- Only the process that is registered hears its assignment; one that is not yet, waits; one that has been replaced ends.
- One Assign at most is unanswered for each replica, and each is made from the newest committed state. So however fast
  the state changes, a slow replica has one message to read, and that is the right one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from raylog.actors.broker.local_replicas import LocalReplicas, ReplicaSession
from raylog.actors.cluster.assignments import assignment_of
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.kernel.background_tasks import BackgroundTasks
from raylog.errors import StreamError

_ANSWER_SECONDS: Final = 2.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0

_log = logging.getLogger(__name__)


class AssignmentDelivery:
    def __init__(self, fold: MetadataFold, replicas: LocalReplicas, tasks: BackgroundTasks, broker_id: int) -> None:
        self._fold = fold
        self._replicas = replicas
        self._tasks = tasks
        self._broker_id = broker_id
        self._telling: dict[ReplicaSession, bool] = {}  # those told just now: whether they have to be told again

    def changed(self, partitions: Iterable[PartitionId]) -> None:
        """The committed state of these has changed, or one of their replicas has said hello."""
        for partition in partitions:
            session = self._replicas.get(partition)
            if session is not None:
                self._changed(session)

    def changed_all(self) -> None:
        for session in self._replicas.all():
            self._changed(session)

    def _changed(self, session: ReplicaSession) -> None:
        registered = self._fold.state.incarnation(*session.id, self._broker_id)
        if registered > session.incarnation:
            self._replicas.dismiss(session)
        elif registered == session.incarnation:
            is_being_told = session in self._telling
            self._telling[session] = True
            if not is_being_told:
                self._tasks.start(self._tell(session))

    async def _tell(self, session: ReplicaSession) -> None:
        pause = _FIRST_PAUSE
        while self._telling[session] and self._replicas.get(session.id) is session:
            self._telling[session] = False
            if self._fold.state.partitions.get(session.id) is None:  # its topic is gone, and soon it is told to stop
                break
            fold = self._fold
            assign = assignment_of(fold.state, *session.id, self._broker_id, fold.version, fold.epoch, fold.shares)
            try:
                await session.stream.request(
                    assign, topic_id=session.id[0], partition=session.id[1], timeout=_ANSWER_SECONDS
                )
                pause = _FIRST_PAUSE
            except StreamError as error:
                _log.warning("%s-%d was not told its assignment: %s", assign.topic, assign.partition, error)
                self._telling[session] = True
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        del self._telling[session]
