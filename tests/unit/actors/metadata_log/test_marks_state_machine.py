"""Copies of a directory against the directory itself, with crashes at every step of raising a mark.

What must hold, whatever comes in between: the directory itself is never taken for an older copy, and a copy from before
the last mark that is recorded always is.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.actors.cluster.broker_membership import mark_directory, register_broker
from raylog.actors.metadata_log.directory_marks import outdated_voters, recorded_marks
from raylog.actors.metadata_log.files import MetadataFiles
from raylog.actors.metadata_log.rules.quorum import PromisedLog
from raylog.actors.protocol.control_messages import MarkDirectory
from raylog.errors import DirectoryOutdated
from tests.simulator.world.faulty_disk import MOMENTS, FaultyDisk, Moment, SimulatedCrash
from tests.unit.actors.metadata_world import DATA, START_MS
from tests.unit.actors.small_cluster import CLUSTER_ID, SmallCluster, registration

MOST_STEPS = 8  # of writing a mark
DIRECTORY = registration(1).directory_id

steps = st.none() | st.integers(1, MOST_STEPS)
powers = st.none() | st.integers()  # none: only the process crashes


class Copy(NamedTuple):
    disk: FaultyDisk
    marks: int  # that had been written whole when it was made


class Restores(RuleBasedStateMachine):
    """One directory, the copies that were made of it, and what the controller has recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = SmallCluster(brokers=0)
        self.disk = FaultyDisk()
        self.disk.make_directory(DATA)
        self.disk.sync_directory("/")
        self.copies: list[Copy] = []
        self.runs = 0
        self.mark: int | None = None  # as the broker knows it, while it runs
        self.written = 0  # marks, whole
        self.recorded = 0  # of those
        self.under_way: tuple[MarkDirectory, int] | None = None

    # --- the broker -----------------------------------------------------------------------------------------------

    def register(self, mark: int) -> None:
        self.runs += 1
        request = replace(registration(1), broker_run=f"run {self.runs}", mark=mark)
        self.cluster.apply(register_broker(self.cluster.state, self.cluster.live, request))

    @precondition(lambda self: self.mark is None)
    @rule()
    def start(self) -> None:
        """It is registered again: with DirectoryOutdated the test fails."""
        mark = mark_on(self.disk)
        self.register(mark)
        self.mark = mark

    @precondition(lambda self: self.mark is not None)
    @rule(crash_at=steps, moment=st.sampled_from(MOMENTS), power=powers)
    def raise_mark(self, crash_at: int | None, moment: Moment, power: int | None) -> None:
        assert self.mark is not None
        if crash_at is not None:
            self.disk.crash_after(crash_at, moment)
        try:
            MetadataFiles(self.disk, DATA, CLUSTER_ID).write_mark(self.mark + 1)
        except SimulatedCrash:
            self.crash(power)
            return
        self.disk.crash_after(1_000_000)
        self.mark += 1
        self.written += 1
        self.under_way = MarkDirectory(1, DIRECTORY, self.mark), self.written

    @precondition(lambda self: self.mark is not None)
    @rule(power=powers)
    def crash(self, power: int | None) -> None:
        """Of the process, or of the machine. What it asked may still be under way."""
        self.mark = None
        if power is None:
            self.disk.crash_process()
        else:
            self.disk.crash_machine(Random(power))

    # --- the controller -------------------------------------------------------------------------------------------

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def record(self) -> None:
        assert self.under_way is not None
        (request, self.recorded), self.under_way = self.under_way, None
        self.cluster.apply(mark_directory(self.cluster.state, request))

    # --- whoever makes backups ------------------------------------------------------------------------------------

    @rule()
    def copy(self) -> None:
        self.copies.append(Copy(self.disk.clone(), self.written))

    @invariant()
    def older_copies_are_recognised(self) -> None:
        for copy in self.copies:
            if copy.marks < self.recorded:
                mark = mark_on(copy.disk)
                assert self.is_outdated(mark)
                with pytest.raises(DirectoryOutdated):
                    self.register(mark)

    @invariant()
    def the_original_counts(self) -> None:
        mark = self.mark if self.mark is not None else mark_on(self.disk.clone())
        assert not self.is_outdated(mark)

    def is_outdated(self, mark: int) -> bool:
        promised = PromisedLog(1, DIRECTORY, 1, 0, 5, (), mark)
        return bool(outdated_voters([promised], recorded_marks(self.cluster.state.to_records())))


def mark_on(disk: FaultyDisk) -> int:
    return MetadataFiles(disk, DATA, CLUSTER_ID).load(START_MS).mark


TestRestores = Restores.TestCase
TestRestores.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
