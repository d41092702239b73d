"""Programs on the hosts of `head_loss.py`: each has joined the Ray of its host, and reports what it was told.

They run until their standard input ends, or line by line as they are asked, and answer in lines of JSON.
"""

from __future__ import annotations

import itertools
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import ray

import raylog
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.errors import RaylogError

TOPIC: Final = "clicks"
PARTITIONS: Final = 6
MARK: Final = "@"
_GROUP: Final = "billing"
_SESSION_MS: Final = 6_000  # less than the head is away for
_PAUSE_SECONDS: Final = 0.02
_SEND_SECONDS: Final = 30.0
_POLL_MS: Final = 200
_AT_END_SECONDS: Final = 2.0
_NODES_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1


def join(host: str) -> None:
    """The Ray node of this host; `RAY_ADDRESS` says of which cluster."""
    ray.init(_node_ip_address=host, log_to_driver=False, logging_level=logging.ERROR)


def tell(report: object) -> None:
    """Marked, since Ray writes lines of its own to standard output."""
    sys.stdout.write(MARK + json.dumps(report) + "\n")
    sys.stdout.flush()


def input_ended() -> threading.Event:
    over = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    return over


def write(host: str) -> None:
    """Writes to all partitions in turn, one record after the other, each acknowledged by all replicas in sync."""
    join(host)
    over = input_ended()
    acknowledged: list[str] = []
    times: list[float] = []
    errors: list[str] = []
    with raylog.Producer(acks="all") as producer:
        for number in itertools.count():
            value = f"{number}"
            try:
                producer.send(TOPIC, value.encode(), partition=number % PARTITIONS).result(timeout=_SEND_SECONDS)
            except RaylogError as error:
                errors.append(repr(error))
            else:
                acknowledged.append(value)
                times.append(time.monotonic())
            if number == 0:
                tell("writes")
            if over.wait(_PAUSE_SECONDS):
                break
    tell({"values": acknowledged, "times": times, "errors": errors})


class Moves:
    """A listener that notes what a member of a group is told of its partitions."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, list[int]]] = []

    def _note(self, event: str, partitions: Iterable[raylog.TopicPartition]) -> None:
        self.events.append((time.monotonic(), event, sorted(each.partition for each in partitions)))

    def on_partitions_assigned(self, partitions: Iterable[raylog.TopicPartition]) -> None:
        self._note("assigned", partitions)

    def on_partitions_revoked(self, partitions: Iterable[raylog.TopicPartition]) -> None:
        self._note("revoked", partitions)

    def on_partitions_lost(self, partitions: Iterable[raylog.TopicPartition]) -> None:
        self._note("lost", partitions)


def read(host: str) -> None:
    """Reads as a member of the group, and commits after each poll; in the end until nothing more comes."""
    join(host)
    over = input_ended()
    moves = Moves()
    values: list[str] = []
    committed: list[float] = []
    errors: list[str] = []
    consumer = raylog.Consumer(
        group_id=_GROUP, auto_offset_reset="earliest", enable_auto_commit=False, session_timeout_ms=_SESSION_MS
    )
    consumer.subscribe([TOPIC], listener=moves)
    last = time.monotonic()
    while not over.is_set() or time.monotonic() - last < _AT_END_SECONDS:
        try:
            polled = consumer.poll(timeout_ms=_POLL_MS)
            values += [record.value.decode() for records in polled.values() for record in records]
            if polled:
                consumer.commit()
                last = time.monotonic()
                committed.append(last)
        except RaylogError as error:
            errors.append(repr(error))
        if len(committed) == 1 and polled:
            tell("reads")
    tell({"values": values, "times": committed, "errors": errors, "moves": moves.events})
    consumer.close()


# --- administration -----------------------------------------------------------------------------------------------


def administrate(host: str) -> None:
    """Does what it is told, line by line: [name, arguments]."""
    join(host)
    tell("joined")
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            tell({"answer": _ADMINISTRATION[name](**arguments)})
        except RaylogError as error:
            tell({"error": repr(error)})


def _form(directory: str, nodes: int) -> str:
    """Once so many nodes have come that may have a broker."""
    deadline = time.monotonic() + _NODES_SECONDS
    while sum(node.is_for_brokers for node in living_nodes()) < nodes and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return raylog.start(directory, form=True).cluster_id


def _create(topic: str, partitions: int) -> int:
    settings = {"min.insync.replicas": 2}
    created = raylog.connect().create_topic(topic, partitions=partitions, replication_factor=3, config=settings)
    return len(created.partitions)


def _look(timeout: float) -> dict[str, Any]:
    found = raylog.connect(timeout=timeout).describe_cluster(timeout=timeout)
    return {
        "controller_epoch": found.controller_epoch,
        "alive": sum(each.alive for each in found.brokers),
        "is_whole": not (found.offline or found.under_replicated),
        "control_store": found.control_store,
    }


def _group_has_settled(members: int) -> bool:
    """Tell whether the coordinator has so many members, each with its share."""
    found = raylog.connect().describe_group(_GROUP).members
    has_share = all(each.assignment == each.target and each.assignment for each in found)
    return len(found) == members and has_share


def _leader() -> dict[str, int]:
    """Return the leader of partition 0."""
    cluster = raylog.connect()
    described = cluster.describe_topic(TOPIC).partitions[0]
    pids = {each.broker: each.pid for each in cluster.describe_replicas(TOPIC) if each.partition == 0}
    return {"broker": described.leader, "epoch": described.leader_epoch, "pid": pids.get(described.leader, 0)}


_ADMINISTRATION: Final[dict[str, Callable[..., object]]] = {
    "create": _create,
    "form": _form,
    "group_has_settled": _group_has_settled,
    "leader": _leader,
    "look": _look,
}
