"""One admitted client does its worst to each kind of process, with each message that it may send (rule 34).

`python -m bench hostile` prints the same as a table. A stall is processor time of the loop's thread, so that a busy
machine does not count; the bounds here leave room for a slow one.
"""

from __future__ import annotations

import pytest

from bench.hostile_bench import MEMORY_MIB, STALL_MS, attacks_with, costs_of, hostile_cluster
from raylog.actors.protocol.messages import CLIENT_MESSAGE_BYTES
from raylog.actors.protocol.replication_messages import Append

_SLOW_MACHINE = 4


@pytest.mark.timeout(600)
def test_no_message_of_a_client_holds_up_a_process_or_fills_its_memory() -> None:
    too_much: list[str] = []
    attacks = 0
    with hostile_cluster() as (targets, key):
        for target in targets:
            for kind in target.kinds:
                for cost in costs_of(target, kind, key):
                    attacks += 1
                    if cost.stall_ms > _SLOW_MACHINE * STALL_MS or cost.memory_mib > 1.5 * MEMORY_MIB:
                        too_much.append(f"{target.name}, {kind.__name__}: {cost}")
    assert attacks > 500
    assert not too_much


def test_attacks_are_as_large_as_a_message_may_be() -> None:
    attacks = list(attacks_with(Append))
    sizes = [len(attack.body) for attack in attacks]
    assert max(sizes) <= CLIENT_MESSAGE_BYTES
    assert sum(size > CLIENT_MESSAGE_BYTES - 1024 for size in sizes) >= 5
    assert sum(bool(attack.payload) for attack in attacks) >= 10
