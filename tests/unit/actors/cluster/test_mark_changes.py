"""Marks on their way to the controller: what is told, and that the controller ends up with what is so."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from raylog.actors.cluster.mark_changes import MarkChanges
from raylog.actors.protocol.control_messages import ReplicaMarks

TOPIC_ID = b"sixteen bytes id"


def marks(partition: int, end: int = 0, *, incarnation: int = 1, full: bool = False) -> ReplicaMarks:
    return ReplicaMarks(TOPIC_ID, partition, incarnation, "leader", 0, end, end, 100 * end, full, "shared", 0)


def answered(changes: MarkChanges) -> tuple[ReplicaMarks, ...]:
    """Tell what is to be told, and have it answered; return it."""
    told, are_all = changes.to_tell()
    changes.told(told, are_all=are_all)
    return told


def test_all_are_told_first_and_then_what_has_changed() -> None:
    changes = MarkChanges()
    changes.registered()
    for partition in range(3):
        changes.changed(marks(partition))
    told, are_all = changes.to_tell()
    assert (len(told), are_all) == (3, True)
    changes.told(told, are_all=True)
    assert changes.to_tell() == ((), False)
    changes.changed(marks(1, 5))
    assert changes.to_tell() == ((marks(1, 5),), False)


def test_marks_are_told_until_they_are_answered() -> None:
    changes = MarkChanges()
    answered(changes)
    changes.changed(marks(0, 1))
    assert changes.to_tell() == changes.to_tell() == ((marks(0, 1),), False)
    assert answered(changes) == (marks(0, 1),)
    assert answered(changes) == ()


def test_an_answer_to_older_marks_leaves_the_newer_ones_to_tell() -> None:
    changes = MarkChanges()
    answered(changes)
    changes.changed(marks(0, 1))
    first, _ = changes.to_tell()
    changes.changed(marks(0, 2))
    changes.told(first, are_all=False)
    assert changes.to_tell() == ((marks(0, 2),), False)


def test_a_new_registration_is_told_all_of_them() -> None:
    changes = MarkChanges()
    changes.changed(marks(0, 1))
    changes.changed(marks(1, 1))
    answered(changes)
    changes.changed(marks(1, 2))
    earlier, _ = changes.to_tell()
    changes.registered()
    changes.told(earlier, are_all=False)  # of the registration before: it proves nothing
    assert changes.to_tell() == ((marks(0, 1), marks(1, 2)), True)


def test_one_that_is_gone_is_told_no_more() -> None:
    changes = MarkChanges()
    answered(changes)
    changes.changed(marks(0, 1, full=True))
    changes.gone((TOPIC_ID, 0))
    changes.gone((TOPIC_ID, 1))
    assert changes.to_tell() == ((), False)
    assert not changes.have_full_disk


def test_a_full_disk_is_known_for_as_long_as_a_replica_says_so() -> None:
    changes = MarkChanges()
    seen = [changes.have_full_disk]
    for told in (marks(0, full=True), marks(1, full=True), marks(0), marks(1)):
        changes.changed(told)
        seen.append(changes.have_full_disk)
    assert seen == [False, True, True, True, False]


@dataclass
class Controller:
    """It forgets when it is replaced, and answers heartbeats in their order, or never."""

    known: dict[int, ReplicaMarks] = field(default_factory=dict)

    def take(self, told: tuple[ReplicaMarks, ...], *, are_all: bool) -> None:
        if are_all:
            self.known = {}
        self.known.update((each.partition, each) for each in told)


@pytest.mark.parametrize("seed", range(100))
def test_whatever_is_lost_the_controller_ends_with_what_is_so(seed: int) -> None:
    rng = random.Random(seed)
    changes, controller = MarkChanges(), Controller()
    truth: dict[int, ReplicaMarks] = {}
    answers: list[tuple[tuple[ReplicaMarks, ...], bool]] = []
    for step in range(200):
        action = rng.choice(("change", "change", "gone", "beat", "beat", "answer", "lose answers", "register"))
        partition = rng.randrange(6)
        if action == "change":
            truth[partition] = marks(partition, step, full=rng.random() < 0.2)
            changes.changed(truth[partition])
        elif action == "gone":
            truth.pop(partition, None)
            changes.gone((TOPIC_ID, partition))
            controller.known.pop(partition, None)  # its loss is reported beside the marks
        elif action == "beat":
            told, are_all = changes.to_tell()
            controller.take(told, are_all=are_all)
            answers.append((told, are_all))
        elif action == "answer" and answers:
            told, are_all = answers.pop(0)
            changes.told(told, are_all=are_all)
        elif action == "lose answers":
            answers.clear()
        elif action == "register":
            changes.registered()
            answers.clear()  # the link heeds answers of this registration only
            if rng.random() < 0.5:
                controller = Controller()
        assert not list(changes.broken_invariants())
        assert changes.have_full_disk == any(each.has_full_disk for each in truth.values())
    told, are_all = changes.to_tell()
    controller.take(told, are_all=are_all)
    assert controller.known == truth
    changes.told(told, are_all=are_all)
    assert changes.to_tell() == ((), False)


def test_how_much_a_log_has_grown_is_told_once() -> None:
    changes = MarkChanges()
    assert changes.changed(marks(0, 5)) == 0  # it may have had that for long
    assert changes.changed(marks(0, 7)) == 200
    assert changes.changed(marks(0, 7)) == 0
    assert changes.changed(marks(0, 6)) == 0  # retention, or a cut
    changes.gone((TOPIC_ID, 0))
    assert changes.changed(marks(0, 9)) == 0
