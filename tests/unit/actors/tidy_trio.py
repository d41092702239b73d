"""Three replicas of a compacted topic, and on each of their machines a housekeeping process, once a test starts it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from dataclasses import dataclass, field

from raylog.actors.housekeeping.housekeeper import Housekeeper, HousekeeperSpec
from raylog.actors.housekeeping.watch import HousekeeperWatch
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Request
from raylog.actors.protocol.control_messages import ProposeIsr
from raylog.actors.protocol.host_messages import HostHello, ReplicaHello
from raylog.actors.protocol.housekeeping_messages import FindHousekeeper, HousekeeperHello
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import split_batches
from raylog.storage.log.reader import Isolation
from tests.simulator.world.machines import Process, SimEnvironment
from tests.unit.actors.replica_trio import Member, Trio

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1000",
    "min.cleanable.dirty.ratio": "0.1",
    "file.delete.delay.ms": "1000",
    "replica.lag.time.max.ms": "2000",
}
BROKER_DIRECTORY = "/data"
REPLICA_DIRECTORY = "/data/topic-0"


@dataclass
class TidyTrio(Trio):
    settings: dict[str, str] = field(default_factory=lambda: dict(SETTINGS))
    housekeepers: dict[int, Process] = field(default_factory=dict)
    watches: dict[int, HousekeeperWatch] = field(default_factory=dict)
    idle_seconds: float = math.inf

    def start_housekeeper(self, broker_id: int) -> Process:
        member = self.members[broker_id]
        process = member.machine.start(f"housekeeper-{broker_id}", self._housekeeper_main, member)
        self.housekeepers[broker_id] = process
        self.until(lambda: self._is_known(broker_id, process))
        return process

    def _is_known(self, broker_id: int, process: Process) -> bool:
        watch = self.watches.get(broker_id)
        return watch is not None and watch._process._pid == process.pid

    async def _housekeeper_main(self, env: SimEnvironment, member: Member) -> None:
        assert member.broker_endpoint is not None
        spec = HousekeeperSpec(
            member.broker_id, member.broker_endpoint, BROKER_DIRECTORY, idle_seconds=self.idle_seconds
        )
        await Housekeeper(env, spec, env.process.pid).run()

    async def _broker_main(self, env: Environment, member: Member) -> None:
        tasks = BackgroundTasks(lambda error: self.world.fail("The broker failed.", error))
        watch = self.watches[member.broker_id] = HousekeeperWatch(env, tasks)

        def take(request: Request) -> Answer | Awaitable[Answer]:
            message = request.message
            if isinstance(message, HousekeeperHello):
                watch.hello(message, request.stream)
            elif isinstance(message, FindHousekeeper):
                return watch.find()
            elif isinstance(message, HostHello):
                self.take_host(member, message, request.stream)
            elif isinstance(message, ReplicaHello):
                member.hello = message
            elif isinstance(message, ProposeIsr):
                self._take_proposal(message)
            return None

        _, endpoints = await env.listen(f"broker-{member.broker_id}", "broker", take)
        member.broker_endpoint = endpoints[0]
        await asyncio.Event().wait()

    # --- records --------------------------------------------------------------------------------------------------

    def put_rounds(self, broker_id: int, rounds: int) -> dict[bytes, bytes]:
        """Four keys again and again, a batch of one segment in each round; returns the newest values."""
        keys = [b"key-%d" % number for number in range(4)]
        now_ms = self.members[broker_id].machine.wall_ms()
        for number in range(rounds):
            data = encode_batch([b"%0200d" % number] * len(keys), keys=keys, timestamps=now_ms)
            self.answer(self._ask(broker_id, Append(NO_EPOCH, -1, 10_000), bytes(data)))
        return dict.fromkeys(keys, b"%0200d" % (rounds - 1))

    def records(self, broker_id: int) -> list[tuple[bytes | None, bytes | None]]:
        log = self.log(broker_id)
        found, offset = [], log.log_start_offset
        while offset < log.log_end_offset:
            read = log.read(offset, 1 << 20, Isolation.LOG_END)
            found += _records_with_keys(read.data)
            offset = read.next_offset
        return found

    def newest(self, broker_id: int) -> dict[bytes | None, bytes | None]:
        return dict(self.records(broker_id))

    def files(self, broker_id: int, part: str) -> list[str]:
        """Those of the replica with this in their names."""
        disk = self.members[broker_id].machine.disk
        names = [path.rpartition("/")[2] for path in disk.files() if path.startswith(f"{REPLICA_DIRECTORY}/")]
        return [name for name in names if part in name]


def _records_with_keys(data: bytes) -> list[tuple[bytes | None, bytes | None]]:
    batches = [decode_batch(batch) for batch in split_batches(data)]
    return [pair for batch in batches for pair in zip(batch.keys, batch.values, strict=True)]
