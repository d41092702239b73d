"""A power cut while a partition's directory is made: what is there afterwards is made anew, or is whole."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulator.world.faulty_disk import FaultyDisk, SimulatedCrash
from tests.unit.storage.small_log import new_disk, open_log

_MOST_OPERATIONS = 60


def crashes_at(operation: int, disk: FaultyDisk) -> bool:
    disk.crash_after(operation)
    try:
        open_log(disk).close()
    except SimulatedCrash:
        return True
    return False


@pytest.mark.parametrize("ordered_names", [True, False])
def test_a_half_made_directory_is_no_damaged_one(ordered_names: bool) -> None:
    """Where names become durable in any order, either file may be there without the other."""
    operations = 0
    for seed in range(30):
        for operation in range(1, _MOST_OPERATIONS):
            disk = new_disk(ordered_names=ordered_names)
            if not crashes_at(operation, disk):
                break
            operations += 1
            disk.crash_machine(Random(seed))
            log = open_log(disk)
            assert log.unproven  # blank (rule 7)
            assert log.log_end_offset == 0
            log.close()
    assert operations > 300
