"""Finding the Ray to run on: the one that is running, or a new one on this machine.

Ray leaves the address of the last cluster in a file, and removes it only on a clean stop. After a crash `ray.init()`
would try to join a cluster that is gone, and fail. So the address is tried first.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ray
from ray.exceptions import AuthenticationError
from ray.util.client import ray as ray_client

from raylog.actors.on_ray.runtime.control_store import PATIENCE, PATIENCE_SECONDS
from raylog.actors.on_ray.runtime.java_runtime import java_on_path
from raylog.actors.on_ray.runtime.lasting_thread import on_a_lasting_thread
from raylog.actors.on_ray.runtime.own_notes import open_lock, ray_folder, read_note, write_note
from raylog.actors.on_ray.runtime.ray_lines import leave_out_worker_counts
from raylog.actors.on_ray.runtime.ray_tokens import (
    AUTH_MODE,
    asks_for_token,
    show_token_if_there_is_one,
    takes_strangers,
    tell_if_tokens_are_off,
    turn_tokens_on,
)
from raylog.actors.on_ray.runtime.worker_priority import normal_priority
from raylog.errors import RayClientRefused, RayNotAdmitted, RayNotStarted, RayUnreachable

_PROBE_SECONDS: Final = 2.0
_OTHERS_START_SECONDS: Final = 120.0
_LOOK_AGAIN_SECONDS: Final = 0.05
_START_NEW: Final = "local"
_ADDRESS: Final = "address"
_FOR_NEW_ONES: Final = ("num_cpus", "num_gpus", "resources", "labels", "object_store_memory", "_system_config")
_HOST_AND_PORT: Final = re.compile(r"[^/]+:\d+")

_log = logging.getLogger(__name__)


def join_or_start_ray(**settings: Any) -> str:
    """Connect to Ray: to that of this process, of `RAY_ADDRESS`, to a running one, or to a new one.

    `settings` go to `ray.init`; those that only a new Ray can have, only if there is to be one. A new one ends with
    this process. Returns the address of the cluster's control store.

    RayUnreachable, RayNotAdmitted, RayNotStarted, RayClientRefused.
    """
    leave_out_worker_counts()
    if not _is_connected():
        with one_process_at_a_time():
            address = named_address() or running_ray()
            _init(address or _START_NEW, settings)
            if address is None:
                write_note(_ADDRESS, str(ray.get_runtime_context().gcs_address))
    return str(ray.get_runtime_context().gcs_address)


def is_none_to_join() -> bool:
    """Return whether `join_or_start_ray` would start a new Ray, with this machine as its only node."""
    return not (_is_connected() or named_address() or running_ray())


def join_ray(**settings: Any) -> str:
    """Connect as `join_or_start_ray`, but never start a new Ray."""
    leave_out_worker_counts()
    if not _is_connected():
        address = named_address() or running_ray()
        if address is None:
            raise RayUnreachable("this machine", "none is running.")
        _init(address, settings)
    return str(ray.get_runtime_context().gcs_address)


def running_ray() -> str | None:
    """Return the address of the cluster last started here, by `ray start` or by raylog, if something answers there."""
    for address in (_noted_by_ray(), _noted_by_raylog()):
        if address and _answers(address):
            return address
        if address:
            _log.info("A Ray was started at %s and does not answer: the trace of an end, or of a crash.", address)
    return None


def address_file() -> Path:
    """Return the file in which Ray on this machine notes its address."""
    return ray_folder() / "ray_current_cluster"


def _noted_by_ray() -> str:
    try:
        return address_file().read_text().strip()
    except FileNotFoundError:
        return ""


def _noted_by_raylog() -> str:
    """Return the address in Ray's note. Ray notes what `ray start` started, and not what a program did."""
    return read_note(_ADDRESS)


def _is_connected() -> bool:
    if ray_client.is_connected():  # type: ignore[no-untyped-call]
        raise RayClientRefused("ray://")
    return ray.is_initialized()


def named_address() -> str | None:
    """Join what `RAY_ADDRESS` names. Ray would try a dead address for minutes, so it is tried first."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named.startswith("ray://"):
        raise RayClientRefused(named)
    if _HOST_AND_PORT.fullmatch(named) and not _answers(named):
        raise RayUnreachable(named, f"nothing accepts connections there within {_PROBE_SECONDS:g} s.")
    return named or None


def _init(address: str, settings: dict[str, Any]) -> None:
    if address != _START_NEW:
        os.environ.setdefault(PATIENCE, str(PATIENCE_SECONDS))  # or Ray ends this process, whatever else it does
        settings = {name: value for name, value in settings.items() if name not in _FOR_NEW_ONES}
        if _HOST_AND_PORT.fullmatch(address) and not takes_strangers(address):
            _have_token(address)
    try:
        # A node has Java for as long as it lives, or never: Spark's executors are Java workers of Ray.
        if address == _START_NEW:
            turn_tokens_on()
            os.environ.update(normal_priority())
            with java_on_path():
                on_a_lasting_thread(lambda: ray.init(address=address, **settings))
        else:
            ray.init(address=address, **settings)
    except AuthenticationError as error:
        raise RayNotAdmitted(address) from error
    except ConnectionError as error:
        raise RayUnreachable(address, str(error)) from error
    except Exception as error:
        if type(error) is Exception and address == _START_NEW:  # all that Ray makes of processes that came too late
            raise RayNotStarted(str(error)) from error
        raise


def _have_token(address: str) -> None:
    """Check the token of this process. RayNotAdmitted: Ray asks for one, and this process has none or another one.

    `ray start`, and a program that starts Ray, turn tokens on by themselves and keep one for this user. A program that
    joins has to turn them on by a variable. So where that is unset, the kept token is tried. `ray.init` would try for
    20 s and then only say that it did not work.
    """
    if AUTH_MODE not in os.environ:
        show_token_if_there_is_one()
    if asks_for_token(address):
        raise RayNotAdmitted(address)


def tell_if_open() -> None:
    """Warn once that the Ray that this process has joined has no tokens."""
    tell_if_tokens_are_off(str(ray.get_runtime_context().gcs_address))


@contextmanager
def one_process_at_a_time() -> Iterator[None]:
    """Hold a lock while looking for Ray, since two processes that find none would start one each."""
    fd = open_lock("lock")
    try:
        _lock(fd)
        yield
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    deadline = time.monotonic() + _OTHERS_START_SECONDS
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RayUnreachable("this machine", "another process has been starting one for long.") from None
        time.sleep(_LOOK_AGAIN_SECONDS)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return True
    except (OSError, ValueError):
        return False
