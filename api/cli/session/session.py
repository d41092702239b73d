"""One run of a command: which cluster it means, and its handle and clients, made when they are first asked for.

Tests put their own in its place. Ray is quiet in a process of the command line: what it prints would be taken for data.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from raylog.actors.protocol.actor_names import DEFAULT_CLUSTER
from raylog.api.connection.progress import show_progress

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import ClusterDescription
    from raylog.api.admin.cluster import Cluster
    from raylog.api.consumer.consumer import Consumer
    from raylog.api.producer.producer import Producer
    from raylog.api.workloads.driver import Target

DEFAULT_SECONDS: Final = 30.0
_NAMES_SECONDS: Final = 5.0  # for looking which name may have been meant


class Session:
    """`context.obj` of every command."""

    def __init__(self) -> None:
        self.name = DEFAULT_CLUSTER
        self.asked_timeout: float | None = None
        self.is_looking = True  # for a cluster that is there; `raylog start` is not
        self._cluster: Cluster | None = None

    @property
    def timeout(self) -> float:
        return self.timeout_or(DEFAULT_SECONDS)

    def timeout_or(self, usual: float) -> float:
        """Return the time-out that was asked for; without one, the usual one."""
        return usual if self.asked_timeout is None else self.asked_timeout

    @property
    def cluster(self) -> Cluster:
        """The handle of the cluster, once it is ready. RayUnreachable, RayNotAdmitted, RayClientRefused,
        ClusterNotFound, ClusterNotReady.
        """
        if self._cluster is None:
            self.join_ray()
            from raylog.api.admin.cluster import Cluster

            cluster = Cluster(self.name)
            cluster.wait_until_ready(self.timeout)
            self._cluster = cluster
        return self._cluster

    def join_ray(self) -> None:
        """The Ray that is running."""
        quieten_ray()
        from raylog.api.cli.session.joining import join_quietly

        join_quietly()

    def producer(self, **options: Any) -> Producer:
        from raylog.api.producer.producer import Producer

        return Producer(cluster=self.cluster, **options)

    def consumer(self, *topics: str, **options: Any) -> Consumer:
        from raylog.api.consumer.consumer import Consumer

        return Consumer(*topics, cluster=self.cluster, **options)

    # --- starting and stopping ------------------------------------------------------------------------------------

    def start_ray(
        self,
        data_dir: str,
        brokers: int | None,
        join: bool,
        port: int | None,
        num_cpus: int | None,
        dashboard: bool,
        timeout: float,
    ) -> bool:
        """Connect to the Ray that is running, or, unless `join`, to a new one. Returns whether it is new."""
        quieten_ray()
        from raylog.actors.on_ray.runtime.own_ray import RaySettings
        from raylog.api.cli.session.ray_session import have_ray

        settings = None if join else RaySettings(port, num_cpus, dashboard)
        return have_ray(self.name, data_dir, brokers, settings, timeout)

    def wait_for_nodes(self, count: int, timeout: float) -> None:
        from raylog.api.cli.session.ray_session import wait_for_nodes

        wait_for_nodes(self.name, count, timeout)

    @staticmethod
    def check_kafka(listen: str | None, advertised: str | None) -> None:
        """Say what is wrong with these listeners before anything is started."""
        from raylog.actors.protocol.gateway_spec import kafka_listeners

        kafka_listeners(listen, advertised)

    def start_cluster(
        self,
        data_dir: str,
        brokers: int | None,
        form: bool | None,
        timeout: float,
        kafka: str | None,
        kafka_advertised: str | None,
        add_brokers: bool,
    ) -> ClusterDescription:
        from raylog.api.cli.session.ray_session import start_cluster

        return start_cluster(self.name, data_dir, brokers, form, timeout, kafka, kafka_advertised, add_brokers)

    def ray_address(self) -> str:
        import ray

        return str(ray.get_runtime_context().gcs_address)

    def stop_cluster(self, timeout: float, *, must_run: bool) -> bool:
        """Whether there was anything to stop."""
        quieten_ray()
        from raylog.api.cli.session.ray_session import stop_cluster

        return stop_cluster(self.name, timeout, must_run=must_run)

    def stop_ray(self) -> None:
        """The one that `raylog start` has started."""
        import ray

        from raylog.api.cli.session.ray_session import stop_ray

        others = [name for name in self.cluster_names() if name != self.name] if ray.is_initialized() else []
        problem = stop_ray(others)
        if problem:
            raise click.ClickException(problem)

    # --- benchmarks -----------------------------------------------------------------------------------------------

    @contextmanager
    def bench_target(self, own: int | None) -> Iterator[Target]:
        """The cluster that is measured; `own`: one of so many brokers, which is gone afterwards."""
        from raylog.api.workloads.driver import RAYLOG, Target

        with ExitStack() as stack:
            if own is not None:
                quieten_ray()
                from raylog.api.cli.session.ray_session import temporary_cluster

                self._cluster = stack.enter_context(temporary_cluster(own))
            import raylog

            yield Target(RAYLOG, (self.cluster.access(), self.cluster.name), raylog.__version__)

    def bench_brokers(self) -> int:
        return len(self.cluster.describe_cluster(timeout=self.timeout).brokers)

    # --- names that may have been meant ---------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        return list(self.cluster.list_topics(internal=True, timeout=_NAMES_SECONDS))

    def group_names(self) -> list[str]:
        return [each.group_id for each in self.cluster.list_groups(timeout=_NAMES_SECONDS)]

    def cluster_names(self) -> list[str]:
        """Return the names of all clusters on the Ray that was joined."""
        from raylog.api.admin.cluster_shutdown import cluster_names

        return cluster_names()


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to what stderr is when a line comes: while progress is drawn there, that draws around it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def quieten_ray() -> None:
    """Make Ray quiet, before it is imported. Commands draw their own progress (`progress.py`)."""
    show_progress(False)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray tells of a change to come
    logging.basicConfig(level=logging.WARNING, format="raylog: %(message)s", handlers=[_Stderr()])


# --- the options that lead to it ----------------------------------------------------------------------------------


def _noted(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def note(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Session), attribute, value)

    return note


def _set_address(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        os.environ["RAY_ADDRESS"] = value


def connects(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which cluster is meant, and how long an answer is waited for."""
    for decorate in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            expose_value=False,
            callback=_noted("asked_timeout"),
            help=f"How long an answer is waited for.  [default: {DEFAULT_SECONDS:g}; start, stop: 60]",
        ),
        click.option(
            "--ray-address",
            metavar="HOST:PORT",
            expose_value=False,
            callback=_set_address,
            help="The Ray it runs on, as in RAY_ADDRESS.  [default: the one that runs on this machine]",
        ),
        click.option(
            "--cluster",
            metavar="NAME",
            envvar="RAYLOG_CLUSTER",
            expose_value=False,
            callback=_noted("name"),
            help=f"The cluster's name, as in RAYLOG_CLUSTER.  [default: {DEFAULT_CLUSTER}]",
        ),
    ):
        command = decorate(command)
    return command
