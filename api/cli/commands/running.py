"""`raylog start`, `stop`, `status`.

A cluster has to outlive the command that started it, and with it the Ray it runs on. Where no
Ray is running, one is therefore started that goes on by itself (`own_ray.py`); where one is running, it is joined.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from raylog.actors.on_ray.runtime.control_store import what_it_means
from raylog.api.admin.cluster_health import problems
from raylog.api.cli.session.session import Session, connects
from raylog.api.cli.terminal.output import JSON, formatted, listed, show_facts, show_json
from raylog.api.cli.terminal.progress import working
from raylog.errors import ClusterNotReady

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import ClusterDescription, PartitionDescription

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2
_SHOWN: Final = 10


@click.command(short_help="Start a cluster, or join one that runs.")
@click.argument("data_dir", envvar="RAYLOG_DATA_DIR", type=click.Path(file_okay=False))
@click.option(
    "-b",
    "--brokers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Brokers per node.  [default: one for each directory there is, at least 1]",
)
@click.option(
    "--form/--no-form",
    default=None,
    help="Whether a new cluster may be formed where no data is found.  [default: on a Ray of one node only]",
)
@click.option(
    "--add-brokers", is_flag=True, help="Add the brokers of a blank DATA_DIR to a cluster that has others on this node."
)
@click.option("--join", is_flag=True, help="Join a Ray that is running; start none.")
@click.option(
    "--nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="First wait until so many nodes with the resource raylog_broker are there.",
)
@click.option("--ray-port", type=click.IntRange(0, 65535), metavar="PORT", help="Of a Ray that is started: its port.")
@click.option("--num-cpus", type=click.IntRange(min=0), metavar="N", help="Of a Ray that is started: its processors.")
@click.option(
    "--kafka",
    metavar="HOST:PORT",
    help="Serve Kafka clients there, without a password; with SASL_PLAINTEXT:// before it, to users (`raylog user`). "
    "Several brokers of a node take consecutive ports.",
)
@click.option(
    "--kafka-advertised", metavar="HOST:PORT", help="What Kafka clients are told instead, of all brokers alike."
)
@click.option("--dashboard", is_flag=True, help="Of a Ray that is started: with its dashboard.")
@formatted
@connects
@click.pass_obj
def start(
    session: Session,
    data_dir: str,
    brokers: int | None,
    form: bool | None,
    add_brokers: bool,
    join: bool,
    nodes: int | None,
    ray_port: int | None,
    num_cpus: int | None,
    kafka: str | None,
    kafka_advertised: str | None,
    dashboard: bool,
    output_format: str,
) -> None:
    """Start a cluster whose data is in DATA_DIR, or join it; form one where there is none.

    It goes on when this command has ended, until `raylog stop`. It runs on the Ray of this machine; where none is
    running, one is started that goes on too. Brokers run on the nodes that carry the resource raylog_broker; where none
    does, on this node.

    DATA_DIR may also stand in RAYLOG_DATA_DIR. The same command after a crash or a stop brings all data back.
    """
    session.is_looking = False
    timeout = session.timeout_or(_START_SECONDS)
    session.check_kafka(kafka, kafka_advertised)
    started = session.start_ray(data_dir, brokers, join, ray_port, num_cpus, dashboard, timeout)
    try:
        with working(f"starting the cluster {session.name!r}"):
            if nodes is not None:
                session.wait_for_nodes(nodes, timeout)
            description = session.start_cluster(data_dir, brokers, form, timeout, kafka, kafka_advertised, add_brokers)
    except BaseException:
        if started:
            session.stop_ray()
        raise
    alive = [each.broker for each in description.brokers if each.alive]
    if output_format == JSON:
        told: dict[str, Any] = {"cluster": session.name, "cluster_id": description.cluster_id, "brokers": alive}
        told |= {"kafka": description.kafka}
        show_json(told | {"ray_address": session.ray_address(), "started_ray": started})
        return
    ray = "a Ray of its own" if started else "the Ray"
    end = "`raylog stop --ray` ends both" if started else "`raylog stop` ends it"
    click.echo(
        f"Cluster {session.name!r} runs with brokers {listed(alive)} on {ray} at {session.ray_address()}; {end}."
    )
    if description.kafka:
        click.echo(f"Kafka clients are served at {','.join(description.kafka)}.")


@click.command()
@click.option("--ray", "with_ray", is_flag=True, help="Also end the Ray that `raylog start` has started.")
@formatted
@connects
@click.pass_obj
def stop(session: Session, with_ray: bool, output_format: str) -> None:
    """Stop the cluster cleanly. Its data stays, and `raylog start` brings it back.

    With --ray the Ray it ran on is ended too, if `raylog start` started it here; a Ray that somebody else started is
    left alone, and so is one on which other clusters run.
    """
    timeout = session.timeout_or(_STOP_SECONDS)
    with working(f"stopping the cluster {session.name!r}"):
        was_running = session.stop_cluster(timeout, must_run=not with_ray)
    if was_running and output_format != JSON:
        click.echo(f"Cluster {session.name!r} is stopped.")
    if with_ray:
        with working("ending Ray"):
            session.stop_ray()
        if output_format != JSON:
            click.echo("The Ray that it ran on is ended." if was_running else "The Ray that raylog started is ended.")
    if output_format == JSON:
        show_json({"cluster": session.name, "stopped": was_running, "stopped_ray": with_ray})


@click.command()
@click.option("--healthy", is_flag=True, help="Fail unless all brokers, replicas and coordinators are well.")
@click.option("--wait", type=click.FloatRange(min=0), metavar="SECONDS", help="With --healthy: wait so long for it.")
@formatted
@connects
@click.pass_obj
def status(session: Session, healthy: bool, wait: float | None, output_format: str) -> None:
    """Whether the cluster runs, and how it is."""
    if wait is not None and not healthy:
        raise click.UsageError("--wait goes with --healthy.")
    deadline = time.monotonic() + (wait or 0.0)
    description = _described(session, deadline)
    while healthy and problems(description) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        description = _described(session, deadline)
    if output_format == JSON:
        show_json(status_document(session.name, description))
    else:
        show_facts(_facts(session.name, description))
        _tell_waiting(description)
    if healthy and (found := problems(description)):
        raise click.ClickException(f"The cluster is not healthy: {'; '.join(found)}.")


def _described(session: Session, deadline: float) -> ClusterDescription:
    """A cluster without a controller may have one before the deadline."""
    while True:
        try:
            return session.cluster.describe_cluster(timeout=session.timeout)
        except ClusterNotReady:
            if time.monotonic() >= deadline:
                raise


def status_document(name: str, description: ClusterDescription) -> dict[str, object]:
    return {
        "cluster": name,
        "cluster_id": description.cluster_id,
        "healthy": not problems(description),
        "problems": problems(description),
        "controller_epoch": description.controller_epoch,
        "brokers": len(description.brokers),
        "brokers_alive": sum(each.alive for each in description.brokers),
        "kafka": description.kafka,
        "coordinators": len(description.coordinators),
        "coordinators_serving": sum(each.serving for each in description.coordinators),
        "topics": description.topics,
        "partitions": description.partitions,
        "offline": description.offline,
        "waiting": [_waiting_document(each) for each in description.waiting],
        "under_replicated": description.under_replicated,
        "under_min_isr": description.under_min_isr,
        "reassigning": description.reassigning,
        "control_store": description.control_store,
    }


def _waiting_document(each: PartitionDescription) -> dict[str, object]:
    return {"topic": each.topic, "partition": each.partition, "waits": each.waits}


def _tell_waiting(description: ClusterDescription) -> None:
    for each in description.waiting[:_SHOWN]:
        click.echo(f"{each.topic}-{each.partition} waits: {each.waits}")
    more = len(description.waiting) - _SHOWN
    if more > 0:
        click.echo(f"and {more} more partitions wait for a person")


def _facts(name: str, description: ClusterDescription) -> list[tuple[str, object]]:
    alive = sum(each.alive for each in description.brokers)
    found = problems(description)
    serving = sum(each.serving for each in description.coordinators)
    return [
        ("cluster", f"{name} ({description.cluster_id})"),
        ("health", "not good" if found else "good"),
        *(("", each) for each in found),
        ("brokers", f"{alive} of {len(description.brokers)} alive"),
        *([("Kafka clients", ", ".join(description.kafka))] if description.kafka else []),
        ("coordinators", f"{serving} of {len(description.coordinators)} serve"),
        ("topics", description.topics),
        ("partitions", description.partitions),
        ("under-replicated", description.under_replicated),
        ("below min.insync", description.under_min_isr),
        ("without a leader", description.offline),
        ("reassigning", description.reassigning),
        ("Ray's control store", what_it_means(description.control_store)),
    ]
