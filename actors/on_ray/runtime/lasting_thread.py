"""Work that has to be begun on a thread that lives as long as its process.

The kernel ends the processes that Ray starts when the *thread* that started them ends (PR_SET_PDEATHSIG), not only when
its process does. So a Ray that is started on another thread, such as a worker of a pool, would end with that thread.

What must stay true: nothing is moved away from the main thread. It lasts by itself, and Ray does some of its start only
there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def on_a_lasting_thread(work: Callable[[], _T]) -> _T:
    """Run `work` on this thread if that is the main one, else on one that never ends. Raises what `work` raises."""
    if threading.current_thread() is threading.main_thread():
        return work()
    done: Future[_T] = Future()
    threading.Thread(target=_work_and_stay, args=(work, done), name="raylog lasting", daemon=True).start()
    return done.result()


def _work_and_stay(work: Callable[[], _T], done: Future[_T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001  # it is raised where the work was asked for
        done.set_exception(error)
        return
    threading.Event().wait()
