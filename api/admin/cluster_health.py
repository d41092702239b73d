"""Whether a cluster is well, and if not, what is wrong with it: a line for each, for people and for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command's help is shown without what this one imports
    from raylog.actors.cluster.descriptions import ClusterDescription, CoordinatorDescription


def problems(description: ClusterDescription) -> list[str]:
    """Empty: all brokers are alive, all replicas in sync, and all coordinators serve, raylog's own topics included."""
    found = [f"broker {each.broker} on {each.host} is away" for each in description.brokers if not each.alive]
    if not description.brokers:
        found.append("no broker has registered")
    for count, what in (
        (description.offline, "without a leader"),
        (description.under_min_isr, "below min.insync.replicas"),
        (description.under_replicated, "with replicas that are not in sync"),
    ):
        if count:
            found.append(f"{count} {'partition' if count == 1 else 'partitions'} {what}")
    return found + [_problem(each) for each in description.coordinators if not each.serving]


def _problem(coordinator: CoordinatorDescription) -> str:
    name = f"{coordinator.topic}-{coordinator.partition}"
    attempts = f", attempt {coordinator.attempts + 1}" if coordinator.attempts else ""
    reason = f": {coordinator.reason}" if coordinator.reason else ""
    return f"the coordinator of {name} does not serve (epoch {coordinator.epoch}{attempts}){reason}"
