"""What is begun on a thread that ends is begun on one that does not."""

from __future__ import annotations

import threading

import pytest

from raylog.actors.on_ray.runtime.lasting_thread import on_a_lasting_thread


def on_a_thread_that_ends(results: list[object]) -> None:
    def main() -> None:
        results.append(on_a_lasting_thread(threading.current_thread))

    thread = threading.Thread(target=main)
    thread.start()
    thread.join(10)


def test_the_main_thread_lasts_by_itself() -> None:
    assert on_a_lasting_thread(threading.current_thread) is threading.main_thread()


def test_the_work_of_a_thread_is_done_on_one_that_outlives_it() -> None:
    results: list[object] = []
    on_a_thread_that_ends(results)
    (worker,) = results
    assert isinstance(worker, threading.Thread)
    assert worker.is_alive()
    assert worker.daemon  # the end of the process does not wait for it


def test_its_error_comes_back() -> None:
    def fail() -> None:
        raise ValueError("no")

    caught: list[BaseException] = []

    def main() -> None:
        with pytest.raises(ValueError, match="no") as raised:
            on_a_lasting_thread(fail)
        caught.append(raised.value)

    thread = threading.Thread(target=main)
    thread.start()
    thread.join(10)
    assert len(caught) == 1
