"""Records that end processes."""

from __future__ import annotations

from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.poison import CAREFUL_SECONDS, Suspicion

PLACE = ("t", 0, 7)


def test_one_death_changes_nothing_two_make_careful_for_a_while() -> None:
    one = Suspicion().death(0.0, None)
    assert not one.is_careful(0.0)
    two = one.death(5.0, None)
    assert two.is_careful(5.0)
    assert not two.is_careful(CAREFUL_SECONDS + 1)
    assert not two.death(1000.0, None).is_careful(1000.0)


def test_a_record_is_poison_when_two_died_with_it_in_hand() -> None:
    suspicion = Suspicion().death(0.0, None).death(2.0, PLACE)
    assert suspicion.poison == set()
    assert suspicion.death(2.0, ("t", 0, 8)).poison == set()
    suspicion = suspicion.death(2.0, PLACE)
    assert suspicion.poison == {PLACE}


def test_actors_that_die_together_make_nobody_careful() -> None:
    suspicion = Suspicion()
    for number in range(10):
        suspicion = suspicion.death(number / 10, None)
    assert not suspicion.is_careful(1.0)


def test_what_is_committed_is_forgotten() -> None:
    suspicion = Suspicion().death(1.0, PLACE).death(2.0, PLACE).death(3.0, ("t", 1, 3))
    assert suspicion.committed([(TopicPartition("t", 0), 7)]).poison == {PLACE}
    left = suspicion.committed([(TopicPartition("t", 0), 8), (TopicPartition("t", 1), 3)])
    assert left.poison == set()
    assert left.counts == ((("t", 1, 3), 1),)
