"""Making a pool: what is wrong is told before anything is made. All else of a pool is its supervisor's."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

import ray
from ray import cloudpickle

from raylog.actors.on_ray.actor_options import pool_actor_options
from raylog.actors.protocol.actor_names import pool_name
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.formation import connect
from raylog.api.admin.pool_handle import POOL_SECONDS, PoolHandle
from raylog.api.connection.records import OffsetAndMetadata
from raylog.api.consumer.consumer_core import check_topics
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.pool.group_offsets import GroupOffsets
from raylog.api.pool.handlers import check_handler
from raylog.api.pool.making import make_once
from raylog.api.pool.on_ray.spec_store import SpecStore
from raylog.api.pool.on_ray.supervisor_actor import PoolActor
from raylog.api.pool.rules.pool_options import ARROW, PoolOptions, PoolSpec, parse
from raylog.config import MIB
from raylog.errors import InvalidConfig, PoolExists, UnknownPool

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from raylog.api.pool.rules.pool_options import PoolSettings

_MOST_CODE: Final = 16 * MIB
_FIRST_ANSWER_SECONDS: Final = 60.0


class ConsumerPool(PoolHandle):
    """Consumers of a group, each an actor of Ray: as many as its lag asks for, none where there is nothing to do.

    >>> def charge(record):
    ...     billing.charge(record.key, record.value)
    >>> pool = raylog.ConsumerPool(charge, ["orders"], "billing", max_actors=20, dead_letter_topic="orders-dead")
    >>> pool.describe().running
    3
    >>> pool.stop()

    `handler` is a function, a coroutine function, or a class: each actor makes one object of it, which is called, and
    closed in the end if it has a `close`. With `takes="batch"` it gets a list of records, with `takes="arrow"` an Arrow
    table. With `exactly_once=True` it is called as `handler(taken, out)`, and what it sends with `out.send(topic,
    value, key=…)` is seen together with the commit of what it was given.

    The pool lives on in Ray when this program ends: `raylog.connect().pool("billing")` finds it again. Options that are
    not the pool's own (`raylog.api.pool.rules.pool_options.PoolOptions`) are those of its consumers.

    PoolExists: the group has one. UnknownTopic; InvalidConfig, UnknownConfig; TypeError: the handler is none. What
    `raylog.connect` raises.
    """

    def __init__(
        self,
        handler: Any,
        topics: str | Sequence[str],
        group_id: str,
        *,
        cluster: Cluster | str | None = None,
        **settings: Unpack[PoolSettings],
    ) -> None:
        named = (topics,) if isinstance(topics, str) else tuple(topics)
        check_topics(named, type(self).__name__)
        check_handler(handler)
        options, for_consumers, begins = parse(dict(settings))
        handle = connect() if cluster is None else connect(cluster) if isinstance(cluster, str) else cluster
        _check_topics_exist(handle, named, options)
        super().__init__(handle.name, group_id)
        code = _pickled(handler, for_consumers)
        longest = ConsumerOptions.parse(for_consumers).max_poll_interval_ms / 1000
        spec = PoolSpec(handle.name, group_id, named, options, code, handler_seconds=longest)
        self._make(handle, spec, begins, reads_committed=for_consumers.get("isolation_level") == "read_committed")

    def _make(self, cluster: Cluster, spec: PoolSpec, begins: str, *, reads_committed: bool) -> None:
        if self._find() is not None:
            raise PoolExists(self.group_id)
        offsets = GroupOffsets(cluster, spec, reads_committed=reads_committed)
        if begins == "latest":
            _begin_at_the_end(cluster, offsets, spec)
        making = uuid.uuid4().hex
        supervisor = ray.remote(PoolActor).options(**pool_actor_options(spec.cluster, pool_name(spec.group_id)))
        store = SpecStore(spec.cluster, spec.group_id, making)
        make_once(spec, store, lambda: supervisor.remote(spec.cluster, spec.group_id, making, reads_committed))
        self._await_first_answer()

    def _await_first_answer(self) -> None:
        deadline = time.monotonic() + _FIRST_ANSWER_SECONDS
        while True:
            try:
                self.wait_until_ready(POOL_SECONDS)
            except UnknownPool:  # Ray has not heard of it yet
                if time.monotonic() >= deadline:
                    raise
            else:
                return


def with_handler(code: bytes, handler: Any) -> bytes:
    """Return the code of a pool with another handler, and the options that its consumers have."""
    check_handler(handler)
    _, for_consumers = cloudpickle.loads(code)
    return _pickled(handler, for_consumers)


def _pickled(handler: Any, for_consumers: dict[str, Any]) -> bytes:
    code: bytes = cloudpickle.dumps((handler, for_consumers))  # type: ignore[no-untyped-call]  # Ray's
    if len(code) > _MOST_CODE:
        meant = f"at most {_MOST_CODE // MIB} MiB when it is pickled: let a class load in __init__ what is large"
        raise InvalidConfig("handler", f"{len(code) / MIB:.0f} MiB", meant)
    return code


def _check_topics_exist(cluster: Cluster, topics: Sequence[str], options: PoolOptions) -> None:
    for topic in topics:
        cluster.describe_topic(topic)
    dead = options.dead_letter_topic
    if dead is not None:
        if dead in topics:
            raise InvalidConfig("dead_letter_topic", dead, "another topic than those that are read")
        cluster.describe_topic(dead)
    if options.takes == ARROW and find_spec("pyarrow") is None:
        raise InvalidConfig("takes", ARROW, "record or batch, as pyarrow is not installed (raylog[arrow])")


def _begin_at_the_end(cluster: Cluster, offsets: GroupOffsets, spec: PoolSpec) -> None:
    """Commit the ends of partitions of which nothing is committed, so that nothing from here on is passed over."""
    found = offsets.look()
    fresh: dict[tuple[str, int], int | OffsetAndMetadata] = {place: found.ends[place] for place in found.begins}
    if fresh:
        cluster.alter_group_offsets(spec.group_id, fresh)
