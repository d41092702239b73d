"""A group coordinator on a real machine: its core, with assignors in processes of their own (rule 34)."""

from __future__ import annotations

from raylog.actors.cluster_link import ClusterLink
from raylog.actors.coordinator_log import CoordinatorLog
from raylog.actors.coordinator_spec import CoordinatorSpec
from raylog.actors.environment import Environment
from raylog.groups.assignor_processes import AssignorProcesses
from raylog.groups.group_core import ClaimedLog, GroupCore
from raylog.groups.group_settings import GroupSettings


def make(env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> GroupCore:
    """For `coordinator_actor.py`."""
    settings = GroupSettings(assignors=frozenset(spec.assignors))
    assignors = AssignorProcesses(env.off_loop, settings.assignors, settings.assignor_seconds)
    return GroupCore(env, spec, log, link, ClaimedLog(log), settings, assignors)
