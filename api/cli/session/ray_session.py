"""Steps of `raylog start` and `stop` with Ray and with a cluster's actors. Imported when they run."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import ray

from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.actors.on_ray.runtime.own_ray import RaySettings, find_or_start_ray, own_ray, stop_own_ray
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.cluster_shutdown import actor_names
from raylog.api.admin.formation import check_before_start, start
from raylog.api.cli.session.joining import join_quietly, keep_ray_off_stdout
from raylog.api.cli.terminal.interrupts import interrupts
from raylog.errors import ClusterNotFound, ClusterNotReady, RayUnreachable

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import ClusterDescription

_LOOK_SECONDS: Final = 0.2


def have_ray(name: str, data_dir: str, brokers: int | None, settings: RaySettings | None, timeout: float) -> bool:
    """Connect to a Ray; where none is running, to one that is started with these settings. Returns whether it was.

    What is wrong with the name or the directory is said before anything is started.
    """
    check_before_start(name, data_dir, brokers)
    started = None if settings is None else find_or_start_ray(settings, timeout)
    try:
        join_quietly()
    except BaseException:
        if started is not None:
            stop_own_ray(started)
        raise
    return started is not None


def wait_for_nodes(name: str, count: int, timeout: float) -> None:
    """Wait until so many nodes are there that brokers may run on. ClusterNotReady."""
    deadline = time.monotonic() + timeout
    while (found := sum(node.is_for_brokers for node in living_nodes())) < count:
        if time.monotonic() >= deadline:
            reason = f"{found} of {count} nodes with the resource raylog_broker are there"
            raise ClusterNotReady(name, round(timeout * 1000), reason)
        time.sleep(_LOOK_SECONDS)


def start_cluster(
    name: str,
    data_dir: str,
    brokers: int | None,
    form: bool | None,
    timeout: float,
    kafka: str | None,
    kafka_advertised: str | None,
    add_brokers: bool,
) -> ClusterDescription:
    cluster = start(
        data_dir, brokers, cluster=name, form=form, timeout=timeout, kafka=kafka, kafka_advertised=kafka_advertised,
        add_brokers=add_brokers,
    )  # fmt: skip
    return cluster.describe_cluster()


@contextmanager
def temporary_cluster(brokers: int) -> Iterator[Cluster]:
    """Yield a cluster on a Ray of its own that ends with this process, in folders that are removed."""
    folder = tempfile.mkdtemp(prefix="raylog-bench-")
    short = tempfile.mkdtemp(prefix="rb-")  # the paths of Ray's sockets have to be short
    os.environ["RAY_TMPDIR"] = short
    os.environ.pop("RAY_ADDRESS", None)
    try:
        keep_ray_off_stdout()
        join_or_start_ray(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        interrupts.take_back()
        try:
            cluster = start(f"{folder}/data", brokers=brokers, cluster="bench")
            yield cluster
            cluster.shutdown()
        finally:
            ray.shutdown()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(short, ignore_errors=True)


def stop_cluster(name: str, timeout: float, *, must_run: bool) -> bool:
    """Whether there was anything to stop; ClusterNotFound, RayUnreachable where there had to be."""
    try:
        join_quietly()
    except RayUnreachable:
        if must_run or own_ray() is None:
            raise
        return False
    if not actor_names(name):
        if must_run:
            raise ClusterNotFound(name, "there is nothing to stop")
        return False
    Cluster(name).shutdown(timeout)
    return True


def stop_ray(others: list[str]) -> str:
    """End the Ray that was started here, if it is the one that is joined. Why not; empty: it is done."""
    own = own_ray()
    if own is None:
        return "No Ray that `raylog start` has started is running here; whoever started this one ends it."
    if ray.is_initialized():
        if str(ray.get_runtime_context().gcs_address) != own.address:
            return f"This Ray was not started by `raylog start` (that one is at {own.address}): it is left alone."
        if others:
            return f"Other clusters run on this Ray ({', '.join(others)}): it is left alone."
        ray.shutdown()
    left = stop_own_ray(own)
    return f"Processes of Ray would not go: {', '.join(map(str, left))}." if left else ""
