"""The event loop of all producers and consumers of a process, on one thread in the background.

    client_runtime() ──first use──► runs ──the process ends──► closed: producers deliver what they hold, links close
         ▲                            └── fork: the child begins without one, and makes its own when it needs it
         └─────────────────────────────────┘

What must stay true:
- The end of the process waits until all that a producer has taken is delivered or has failed. Python runs `atexit`
  after the threads that are no daemons, and before it stops the others; so this one is a daemon, and still turns
  then.
- Ctrl-C ends any wait, also that one.
- What was made before a fork is refused in the child: its thread, its locks and its connections stayed behind.
- Producers and consumers of one cluster share a link, which ends with the last of them.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import ctypes
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.machine.real_environment import RealEnvironment
from raylog.actors.machine.tls import RayTls
from raylog.api.connection.client_access import LinkAddress
from raylog.api.connection.interruptible_waits import wait_in_slices
from raylog.errors import ClientOfOtherProcess, RequestTimedOut, StreamNotOpen

# Beside a busy thread a loop gets a turn this often; with Python's own 5 ms it fell to a twentieth of its speed.
_SWITCH_SECONDS: Final = 0.0005
_STOP_SECONDS: Final = 5.0
_EXIT_SECONDS: Final = 3600.0  # each producer ends sooner, by its own time-outs
_TELL_SECONDS: Final = 3.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class ClientRuntime:
    """Made by `client_runtime`."""

    def __init__(self) -> None:
        if sys.getswitchinterval() > _SWITCH_SECONDS:
            sys.setswitchinterval(_SWITCH_SECONDS)
        keep_memory()
        self.pid = os.getpid()
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._is_over = False
        self._links: dict[str, _SharedLink] = {}
        self._closers: dict[object, Callable[[], Awaitable[None]]] = {}
        asyncio.get_event_loop_policy()  # made under a lock, which the child of a fork would find taken by the thread
        self._thread = threading.Thread(target=self._turn, name="raylog clients", daemon=True)
        self._thread.start()

    def run(
        self,
        work: Coroutine[Any, Any, _T],
        timeout: float | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> _T:
        """Run this on the loop, from any other thread, and wait for it. Ctrl-C and the time-out cancel it.

        None: `work` has a time-out of its own. `meanwhile` is called now and then.

        RequestTimedOut, ClientOfOtherProcess, StreamNotOpen.
        """
        future = self.submit(work)
        try:
            if wait_in_slices(future, timeout, meanwhile):
                return future.result()
            raise RequestTimedOut("This process's client loop", round(1000 * (timeout or 0.0)))
        except BaseException:
            future.cancel()  # nothing, where it is done
            raise

    def submit(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        """Start this on the loop, from any thread. ClientOfOtherProcess, StreamNotOpen."""
        try:
            self.check("client")
            if threading.current_thread() is self._thread:
                raise RuntimeError("A callback on the client loop must not wait for it: it would wait for ever.")
        except BaseException:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    @property
    def is_running(self) -> bool:
        """Whether it takes work: in the process that it was made in, and before the end of that."""
        return self.pid == os.getpid() and not self._is_over

    def check(self, what: str) -> None:
        """Raise unless it runs, and in this process. To be called before any lock from before a fork is taken."""
        if self.pid != os.getpid():
            raise ClientOfOtherProcess(what, self.pid, os.getpid())
        if self._is_over:
            raise StreamNotOpen("the cluster", "this process is ending")

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def acquire_link(self, address: LinkAddress) -> ClusterLink:
        """The link to that cluster, of which each user is one who has to `release_link` it."""
        shared = self._links.get(address.cluster_id)
        if shared is None or shared.link.is_over:
            env = ClientEnvironment(address.place, RayTls.from_environment())
            shared = _SharedLink(ClusterLink(env, address.bootstrap, address.node_id, address.finder(env)))
            self._links[address.cluster_id] = shared
        shared.link.env.keys.adopt(address.place.secrets)
        shared.users += 1
        return shared.link

    async def release_link(self, link: ClusterLink) -> None:
        for cluster_id, shared in list(self._links.items()):
            if shared.link is link:
                shared.users -= 1
                if shared.users == 0:
                    del self._links[cluster_id]
                    await link.close()
                return
        await link.close()  # one that broke, and was replaced

    def at_exit(self, close: Callable[[], Awaitable[None]]) -> Callable[[], None]:
        """Let this run on the loop before the process ends, within its own time-out. Returns what takes it back."""
        key = object()
        self._closers[key] = close
        return lambda: self._closers.pop(key, None) and None

    # --- ending ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the runtime with the process; a second call does nothing."""
        if self._is_over or self.pid != os.getpid():
            return
        ending = self.submit(self._close_all())
        self._is_over = True
        try:
            self._wait(ending)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_STOP_SECONDS)

    def _wait(self, ending: concurrent.futures.Future[None]) -> None:
        if not wait_in_slices(ending, _TELL_SECONDS):
            _log.warning("This process ends when its producers have delivered what they hold; Ctrl-C gives that up.")
            if not wait_in_slices(ending, _EXIT_SECONDS):
                _log.error("What producers of this process hold is given up.")
                return
        ending.result()

    async def _close_all(self) -> None:
        closers, self._closers = list(self._closers.values()), {}
        for error in await asyncio.gather(*(close() for close in closers), return_exceptions=True):
            if isinstance(error, BaseException):
                _log.error("A client was not closed cleanly at the end of this process: %s", error)
        links, self._links = list(self._links.values()), {}
        for shared in links:
            await shared.link.close()
        await _end_tasks()

    def _turn(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            try:
                self.loop.run_forever()
            except BaseException:  # SystemExit in a callback of a future, say: the other clients need the loop
                if self.loop.is_closed():
                    raise
                _log.exception("The loop of this process's clients goes on after what a callback of its has raised.")
            else:
                return


async def _end_tasks() -> None:
    """End tasks of clients that nobody has closed and that hold nothing, such as consumers: Python would complain of
    them.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_STOP_SECONDS)


class ClientEnvironment(RealEnvironment):
    """The real one, also while the process ends."""

    def off_loop(self, work: Callable[[], _T]) -> Awaitable[_T]:
        try:
            return super().off_loop(work)
        except RuntimeError:  # Python closes all thread pools before `atexit`; what is left to do is done on the loop
            done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
            done.set_result(work())
            return done


class _SharedLink:
    def __init__(self, link: ClusterLink) -> None:
        self.link = link
        self.users = 0


# --- the one of this process ------------------------------------------------------------------------------------------

_runtime: ClientRuntime | None = None
_making = threading.Lock()


def client_runtime() -> ClientRuntime:
    """Return the runtime of this process, made if there is none."""
    global _runtime  # noqa: PLW0603 (a process has one)
    with _making:
        if _runtime is None:
            _runtime = ClientRuntime()
            atexit.register(_close)
            _close_at_end_of_multiprocessing_child()
        return _runtime


def _close() -> None:
    if _runtime is not None:
        _runtime.close()


def _close_at_end_of_multiprocessing_child() -> None:
    """Such a process ends without `atexit`, but for this."""
    multiprocessing = sys.modules.get("multiprocessing.util")
    if multiprocessing is not None:
        multiprocessing.Finalize(None, _close, exitpriority=1)


def _forget() -> None:
    """Start anew in the child of a fork, where another thread of the parent may have held the lock.

    The loop stays for ever: for uvloop it is still running, and to let go of a loop that runs ends the process.
    """
    global _runtime, _making  # noqa: PLW0603
    if _runtime is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_runtime.loop))
    _runtime = None
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget)
