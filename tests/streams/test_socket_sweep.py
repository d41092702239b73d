"""Directories of sockets that are swept while processes come and go: real threads, and real locks of the kernel."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator

import pytest

from raylog.actors.machine.socket_directory import (
    _held,
    is_dead,
    listening_socket,
    socket_directory,
    socket_path,
    sweep_beside,
)


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary folder of its own, with a short path."""
    folder = tempfile.mkdtemp(prefix="s-")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", folder)
    yield
    shutil.rmtree(folder)


def let_go(directory: str) -> None:
    """Let go of a socket as the end of a process does."""
    os.close(_held.pop(directory))


def test_a_directory_that_is_being_swept_is_there_for_who_comes_in_that_moment() -> None:
    own = socket_directory("own", "10.0.0.1")
    is_over = threading.Event()

    def sweep() -> None:
        while not is_over.is_set():
            sweep_beside(own)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(300):
            directory = socket_directory(f"cluster {number % 2}", "10.0.0.1")
            path = socket_path(directory, "broker-0")
            with listening_socket(path):
                assert not is_dead(path)
            let_go(directory)
    finally:
        is_over.set()
        sweeper.join()
    let_go(own)
