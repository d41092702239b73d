"""Why a partition has no leader, in words for the person who has to do something about it."""

from __future__ import annotations

from collections.abc import Iterable

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.protocol.control_messages import NO_LEADER


def why_nobody_leads(partition: PartitionState, topic: str) -> str:
    """Empty where somebody leads."""
    if partition.leader != NO_LEADER:
        return ""
    if partition.never_led:
        return "none of its replicas has started yet"
    if partition.last_members:
        return f"what was acknowledged is on {_brokers(partition.last_members)}, whose replica does not run: start it"
    if partition.doubtful:
        back = _brokers(partition.doubtful_brokers)
        return f"{back} may have lost the end of its log in a reboot; the other replicas are waited for, for a while"
    lost = "; ".join(f"broker {broker}: {why}" for broker, why in partition.lost)
    return (
        f"no copy is left that surely holds what was acknowledged ({lost or 'none is known'}); a person has to choose "
        f"one: raylog topic recover {topic} -p {partition.partition}"
    )


def _brokers(brokers: Iterable[int]) -> str:
    numbers = sorted(brokers)
    return f"broker {numbers[0]}" if len(numbers) == 1 else "brokers " + ", ".join(map(str, numbers))
