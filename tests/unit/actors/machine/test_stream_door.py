"""Who waits at a server's door, who has to make room, and how seldom strangers get into the log."""

from __future__ import annotations

import logging

import pytest

from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.machine.stream_door import MAX_WAITING, MAX_WAITING_OF_ADDRESS, Door


def test_the_first_of_too_many_makes_room() -> None:
    door: Door[int] = Door()
    assert [door.came(number) for number in range(MAX_WAITING)] == [None] * MAX_WAITING
    assert door.came(MAX_WAITING) == 0
    door.left(0)
    assert door.came(MAX_WAITING + 1) == 1


def test_who_has_proved_itself_takes_no_room() -> None:
    door: Door[int] = Door()
    for number in range(3 * MAX_WAITING):
        assert door.came(number) is None
        door.left(number)
    assert len(door) == 0


def test_one_address_gets_in_the_way_of_itself_only() -> None:
    door: Door[int] = Door()
    door.came(-1)
    assert door.has_address(-1, "192.0.2.7") is None
    for number in range(MAX_WAITING_OF_ADDRESS):
        assert door.came(number) is None
        assert door.has_address(number, "192.0.2.1") is None
    assert door.came(1_000) is None
    assert door.has_address(1_000, "192.0.2.1") == 0
    assert door.came(1_001) is None
    assert door.has_address(1_001, "192.0.2.8") is None


def test_a_unix_socket_has_no_addresses() -> None:
    door: Door[int] = Door()
    for number in range(MAX_WAITING):
        assert door.came(number) is None
        assert door.has_address(number, "") is None


def test_who_is_gone_has_no_address() -> None:
    door: Door[int] = Door()
    door.came(1)
    door.left(1)
    assert door.has_address(1, "192.0.2.1") is None
    assert len(door) == 0


def test_one_line_a_second_and_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    log = RareLog(logging.getLogger("rare"), lambda: now)
    for _ in range(5):
        log.warning("%s knocks", "somebody")
    now += 1.0
    log.warning("%s knocks", "another")
    now += 1.0
    log.warning("%s knocks", "a third")
    assert [each.getMessage() for each in caplog.records] == [
        "somebody knocks",
        "another knocks (4 such lines were left out before it.)",
        "a third knocks",
    ]
