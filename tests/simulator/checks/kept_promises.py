"""Promises of brokers to controllers, kept outside of the brokers: a broker's next process has to know of them.

A promise that is forgotten loses records only where an old controller comes back at the right moment. So the check is
where it would be forgotten: as a process begins on the directory in which another one has promised.

It demands: an epoch that a process has taken for durably promised is promised by every later process on the same
directory, whatever crash lies between them (rules 15 and 17).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.broker.broker import Broker
from tests.simulator.checks.history import InvariantBroken


@dataclass
class KeptPromises:
    _by_directory: dict[str, int] = field(default_factory=dict)

    def process_ended(self, broker: Broker) -> None:
        """Note the end of a process, which may have answered with any promise that it knew of."""
        known = self._by_directory.get(broker._directory_id, -1)
        self._by_directory[broker._directory_id] = max(known, broker._copy.promised_epoch)

    def process_began(self, broker: Broker) -> None:
        promised, now = self._by_directory.get(broker._directory_id, -1), broker._copy.promised_epoch
        if now < promised:
            broken = f"broker {broker._spec.broker_id} has promised controller epoch {promised}, and knows of {now}"
            raise InvariantBroken(broken)
