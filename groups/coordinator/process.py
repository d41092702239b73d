"""A group coordinator on a real machine: its core, with assignors in processes of their own (rule 34)."""

from __future__ import annotations

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.groups.assignors.processes import AssignorProcesses
from raylog.groups.coordinator.core import ClaimedLog, GroupCore
from raylog.groups.records.settings import GroupSettings


def make(env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> GroupCore:
    """Make a core for `on_ray/coordinator_host_actor.py`."""
    settings = GroupSettings(assignors=frozenset(spec.assignors))
    assignors = AssignorProcesses(env.off_loop, settings.assignors, settings.assignor_seconds)
    return GroupCore(env, spec, log, link, ClaimedLog(log), settings, assignors)
