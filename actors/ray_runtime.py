"""Finding the Ray to run on: the one that is running, or a new one on this machine.

Ray leaves the address of the last cluster in a file, and removes it only on a clean stop. After a crash `ray.init()`
would try to join a cluster that is gone, and fail. So the address is tried before it is believed.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

import ray

from raylog.errors import RayUnreachable

_PROBE_SECONDS: Final = 2.0
_START_NEW: Final = "local"
_HOST_AND_PORT: Final = re.compile(r"[^/]+:\d+")

_log = logging.getLogger(__name__)


def join_or_start_ray(**settings: Any) -> str:
    """Be connected to Ray: to the one this process has, that `RAY_ADDRESS` names, that is running, or to a new one.

    `settings` go to `ray.init`. Returns the address of the cluster's control store.
    """
    if not ray.is_initialized():
        named = os.environ.get("RAY_ADDRESS", "")
        # Left to itself Ray tries a dead address for minutes.
        if _HOST_AND_PORT.fullmatch(named) and not _answers(named):
            raise RayUnreachable(named, f"nothing accepts connections there within {_PROBE_SECONDS:g} s.")
        address = named or running_ray() or _START_NEW
        try:
            ray.init(address=address, **settings)
        except ConnectionError as error:
            raise RayUnreachable(address, str(error)) from error
    return str(ray.get_runtime_context().gcs_address)


def running_ray() -> str | None:
    """The address of the cluster last started on this machine, if something answers there."""
    file = address_file()
    try:
        address = file.read_text().strip()
    except FileNotFoundError:
        return None
    if _answers(address):
        return address
    _log.warning("%s names a Ray at %s that does not answer; it is taken for the trace of a crash.", file, address)
    return None


def address_file() -> Path:
    """Where Ray on this machine notes its address."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or tempfile.gettempdir()
    return Path(folder) / "ray" / "ray_current_cluster"


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS):
            return True
    except (OSError, ValueError):
        return False
