"""The looks at other processes: what listens at a port, from the table that Linux shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.partitions.processes import cpu_seconds, listener_at, private_mib

_TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1111 1 0 100 0 0 10 0
   1: 0100007F:2384 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 2222 1 0 20 4 30 10 -1
   2: 0100007F:2385 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 3333 1 0 100 0 0 10 0
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A `/proc` in which 11 is connected to the port, and 12 listens at it."""
    for pid, inode in (11, 2222), (12, 1111):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "7").symlink_to(f"socket:[{inode}]")
    (tmp_path / "13").mkdir()  # of another user, or ended: its files do not show
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(_TABLE)
    return tmp_path


def test_the_process_that_listens_is_found_and_not_one_that_is_connected(proc: Path) -> None:
    assert listener_at(0x2384, proc) == 12


@pytest.mark.parametrize("port", [0x2385, 0x9C40])
def test_a_port_without_a_listener_that_shows_is_said(proc: Path, port: int) -> None:
    with pytest.raises(LookupError, match=f"port {port}"):
        listener_at(port, proc)


def test_costs_of_this_process_are_seen() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert 1 < private_mib([os.getpid()]) < 10_000
