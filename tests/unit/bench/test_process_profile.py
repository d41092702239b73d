"""What a process has asked Linux for, and the rooms that its functions belong to."""

from __future__ import annotations

import cProfile
import os
from pathlib import Path

import pytest

from bench.gateway.process_profile import Function, Profiles, shares, spent


def test_a_process_has_spent_more_and_more() -> None:
    before = spent(os.getpid())
    sum(range(1_000_000))
    after = spent(os.getpid())
    assert after.processor > before.processor
    assert (after.queued >= before.queued, after.wakes >= before.wakes) == (True, True)


def test_the_first_room_that_fits_has_the_time_of_a_function() -> None:
    functions = [
        Function("/x/api/kafka/protocol/wire.py", "read", 1, 1.0),
        Function("/x/api/kafka/gateway.py", "answer", 1, 2.0),
        Function("/x/actors/machine/stream_frames.py", "write", 1, 4.0),
        Function("", "<built-in method builtins.len>", 1, 1.0),
    ]
    rooms = [("write", "writing"), ("api/kafka/protocol/", "codec"), ("api/kafka/", "serving")]
    assert shares(functions, rooms, "others") == {"writing": 0.5, "serving": 0.25, "codec": 0.125, "others": 0.125}
    assert shares([], rooms, "others") == {}


def test_a_profile_is_read_as_its_functions(tmp_path: Path) -> None:
    profile = cProfile.Profile(builtins=True)
    profile.runcall(lambda: [len(each) for each in ("a", "b")])
    profile.dump_stats(tmp_path / "leader.profile")
    found = {each.name: each for each in Profiles(str(tmp_path))._read("leader")}
    assert found["<built-in method builtins.len>"][:3] == ("", "<built-in method builtins.len>", 2)
    assert found["<lambda>"].file == __file__
    with pytest.raises(FileNotFoundError):
        Profiles(str(tmp_path))._read("follower")
