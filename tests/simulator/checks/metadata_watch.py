"""Looks at the metadata log in all processes of a simulated cluster, for what must never be there.

What any broker or controller takes for committed, every other one has there too, now and ever after (rule 17). A
cluster may lose records much later because of it, or never; here it shows as soon as it is so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from raylog.actors.metadata_log.rules.tail import LogTail
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.cluster.simulated_cluster import SimulatedCluster


@dataclass
class MetadataWatch:
    """`look` now and then: at each log only at what is new."""

    cluster: SimulatedCluster
    _committed: dict[int, tuple[int, int]] = field(default_factory=dict)  # by the offset after a batch
    _seen: dict[object, int] = field(default_factory=dict)  # by whose memory it is

    def look(self) -> None:
        for home in self.cluster.homes.values():
            broker = home.broker
            if home.is_running and broker is not None and not broker._copy.offline.done():
                self._check(f"broker {home.broker_id}", broker, broker._copy._tail, broker._copy.version)
        for running in self.cluster.controllers:
            if running.serves and running.controller is not None:
                writer = running.controller.reign.writer
                self._check(running.process.name, writer, writer._tail, writer.version)

    def _check(self, who: str, owner: object, tail: LogTail, version: int) -> None:
        seen = max(self._seen.get(owner, 0), tail.start_offset)
        if seen < version:
            for batch in tail.batches_from(seen):
                if batch.end_offset > version:
                    break
                self._compare(who, batch.end_offset, (batch.epoch, crc32(batch.data)))
                seen = batch.end_offset
        self._seen[owner] = seen

    def _compare(self, who: str, end_offset: int, found: tuple[int, int]) -> None:
        expected = self._committed.setdefault(end_offset, found)
        if expected != found:
            broken = f"{who}: {found} (epoch, checksum) is committed up to {end_offset}, where {expected} was before"
            self.cluster.world.fail("The watcher of metadata", InvariantBroken(broken))
