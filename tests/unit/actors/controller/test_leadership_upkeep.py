"""How long elections in doubt wait, and for whom (rule 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.leadership_upkeep import LeadershipUpkeep
from raylog.actors.kernel.background import Timers
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import Message
from raylog.storage.directory.doubts import REBOOTED
from tests.unit.actors.kernel.test_timers import in_a_process
from tests.unit.actors.small_cluster import SmallCluster


class AfterPowerCut:
    """All three replicas of a partition have lost their power, 2 and 3 were in sync. Who comes back is in doubt.

    What is decided is committed at once.
    """

    def __init__(self) -> None:
        self.cluster = SmallCluster(3)
        self.cluster.create("t", [1, 2, 3])
        self.cluster.lose_broker(1)
        self.cluster.lose_broker(2, 3)
        self.state, self.live, self.version = self.cluster.state, self.cluster.live, 0
        self.upkeep = LeadershipUpkeep(cast(ClusterChanges, self), balance_leaders=False)
        self.upkeep.begin()

    def submit(self, records: Sequence[Message]) -> None:
        self.cluster.apply(records)
        self.committed()

    def broker_returns(self, broker: int) -> None:
        self.cluster.start_broker(broker, run="after")

    def replica_returns(self, broker: int, end: int) -> None:
        self.cluster.start_replica("t", broker, log=(0, end), unproven=REBOOTED)
        self.committed()

    def committed(self) -> None:
        self.upkeep.committed([ReplicaChange("t", self.partition.id, (1, 2, 3), (1, 2, 3))])

    @property
    def partition(self) -> PartitionState:
        return self.cluster.partition("t")


def tried(trial: Callable[[AfterPowerCut], Awaitable[None]]) -> None:
    async def main(_timers: Timers) -> None:
        after = AfterPowerCut()
        running = asyncio.ensure_future(after.upkeep.run())
        await trial(after)
        running.cancel()

    in_a_process(main, 200.0)


def test_a_broker_that_stays_away_is_waited_for_for_a_while() -> None:
    async def trial(after: AfterPowerCut) -> None:
        for broker, end in ((3, 5), (2, 9)):
            after.broker_returns(broker)
            after.replica_returns(broker, end)
        await asyncio.sleep(9.0)
        assert after.partition.leader == NO_LEADER
        await asyncio.sleep(2.0)
        assert after.partition.leader == 2

    tried(trial)


def test_a_replica_whose_broker_is_there_is_waited_for_until_its_process_was_started_again() -> None:
    async def trial(after: AfterPowerCut) -> None:
        for broker in (1, 2, 3):
            after.broker_returns(broker)
        after.replica_returns(3, 5)
        after.replica_returns(2, 9)
        await asyncio.sleep(35.0)  # an order to start it was lost, and is repeated after half a minute
        assert after.partition.leader == NO_LEADER
        after.replica_returns(1, 20)
        assert after.partition.leader == 1

    tried(trial)


def test_one_that_is_there_leads_as_soon_as_it_has_told_how_far_it_is() -> None:
    """No record says so: its marks come with a heartbeat."""

    async def trial(after: AfterPowerCut) -> None:
        for broker, end in ((3, 5), (1, 7), (2, 9)):
            after.broker_returns(broker)
            if broker == 2:  # broker 1 was there first, and has gone on
                assert after.partition.doubtful_brokers == (3,)
            after.replica_returns(broker, end)
        assert after.partition.leader == NO_LEADER
        after.cluster.tell("t", 1, 0, 20)
        await asyncio.sleep(1.0)
        assert after.partition.leader == 1

    tried(trial)


def test_it_is_not_waited_for_for_ever() -> None:
    async def trial(after: AfterPowerCut) -> None:
        for broker in (1, 2, 3):
            after.broker_returns(broker)
        after.replica_returns(3, 5)
        after.replica_returns(2, 9)
        await asyncio.sleep(60.0)
        assert after.partition.leader == 2

    tried(trial)


def test_those_who_die_a_second_time_are_waited_for_anew() -> None:
    """The time that ran out while they were there before is none of theirs."""

    async def trial(after: AfterPowerCut) -> None:
        for broker, end in ((3, 5), (2, 9)):
            after.broker_returns(broker)
            after.replica_returns(broker, end)
        await asyncio.sleep(8.0)
        after.cluster.lose_broker(2, 3)
        after.committed()
        await asyncio.sleep(8.0)
        after.broker_returns(3)
        after.replica_returns(3, 5)
        await asyncio.sleep(5.0)
        assert after.partition.leader == NO_LEADER
        after.broker_returns(2)
        after.replica_returns(2, 9)
        await asyncio.sleep(11.0)
        assert after.partition.leader == 2

    tried(trial)
