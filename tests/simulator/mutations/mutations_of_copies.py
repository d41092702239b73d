"""Rule 7 switched off where the last copies of a partition go, and where a person chooses. See `mutations.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from raylog.actors.cluster import assignments
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.protocol.control_messages import NO_UNCLEAN_EPOCH, Assign
from raylog.actors.replica.rules import replication
from raylog.storage.directory import doubts
from tests.simulator.mutations.mutations import Patches, mutation, theme
from tests.simulator.plan import LAST_COPIES
from tests.simulator.world.faulty_disk import FaultyFile


@mutation(7, "a blank log is elected in doubt, as if it had only been rebooted", where=theme(LAST_COPIES))
def blank_elected(patches: Patches) -> None:
    patches.function(doubts.may_be_elected, lambda doubt: True)


@mutation(7, "a partition that has lost its members counts as one that was never used", where=theme(LAST_COPIES))
def used_counts_as_unused(patches: Patches) -> None:
    def is_unused(self: PartitionState) -> bool:
        return not (self.never_led or self.last_members or self.is_held)

    patches.attribute(PartitionState, "is_unused", property(is_unused))


@mutation(7, "what a follower cuts for a leader without it is not set aside", where=theme(LAST_COPIES))
def nothing_set_aside(patches: Patches) -> None:
    patches.function(replication.may_be_all_there_is, lambda *args: False)


@mutation(7, "followers are not told which election may have lost records", where=theme(LAST_COPIES))
def unclean_epoch_untold(patches: Patches) -> None:
    tell = assignments.assignment_of

    def told(*args: Any) -> Assign:
        return replace(tell(*args), unclean_epoch=NO_UNCLEAN_EPOCH)

    patches.function(tell, told)


@mutation(
    7,
    "a log is cut in the very file that its copy has",
    masked="by chance: hardly a seed has no other copy of the one segment that is cut; `test_log_copy.py` tells",
)
def shared_file_cut(patches: Patches) -> None:
    patches.attribute(FaultyFile, "links", lambda self: 1)
