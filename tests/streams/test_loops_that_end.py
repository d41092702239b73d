"""A core whose loop has ended ends its process; a client's loop goes on, whatever a callback raises (rule 34)."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest

from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.client_threads import SERVING_THREADS, goes_on_after
from raylog.api.producer.buffer.interceptors import Interceptors

_CORE = """
import sys, time
from raylog.actors.machine.loop_thread import CoreThread
core = CoreThread("cluster")
def end():
    {}
core._loop.call_soon_threadsafe(end)
time.sleep(60)
sys.exit(0)
"""


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ("raise SystemExit(0)", "The event loop of this core has ended"),
        ("raise KeyboardInterrupt", "The event loop of this core has ended"),
        ("core._loop.stop()", "The event loop of this core was stopped"),
    ],
)
def test_a_core_whose_loop_has_ended_ends_its_process(ends: str, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CORE.format(ends)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1
    assert says in done.stderr


async def _one() -> int:
    return 1


def test_the_loop_of_clients_goes_on_after_system_exit_in_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    runtime = ClientRuntime()

    def leave(_done: object) -> None:
        raise SystemExit(3)

    with caplog.at_level(logging.ERROR):
        future = runtime.submit(_one())
        future.add_done_callback(leave)
        assert future.result(60) == 1
        runtime.loop.call_soon_threadsafe(leave, None)
        assert runtime.run(_one(), 60) == 1
    assert "goes on" in caplog.text
    runtime.loop.call_soon_threadsafe(runtime.loop.stop)
    runtime._thread.join(60)
    assert not runtime._thread.is_alive()
    runtime.loop.close()


def test_what_ends_a_program_is_survived_on_the_threads_of_clients_alone() -> None:
    assert goes_on_after(ValueError())
    assert not goes_on_after(SystemExit())
    SERVING_THREADS.add(threading.get_ident())
    try:
        assert goes_on_after(SystemExit())
    finally:
        SERVING_THREADS.discard(threading.get_ident())


def test_an_interceptor_that_leaves_on_a_programs_thread_ends_the_program() -> None:
    class Leaves:
        def close(self) -> None:
            raise SystemExit

    with pytest.raises(SystemExit):
        Interceptors([Leaves()]).close()
