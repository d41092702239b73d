"""Kills of what serves a cluster, each of something chosen by chance: leaders, and processes that hold coordinators."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Final

import ray

import raylog
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

_LOOK_SECONDS: Final = 0.1
_WHOLE_SECONDS: Final = 20.0
_PREFIX: Final = "coordinators-"


class ClusterKills:
    """Each kill returns what it has killed; "none: …" where there was nothing to kill just now."""

    def __init__(self, cluster: raylog.Cluster, random: Random, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._random = random
        self._topics = (*topics, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)

    def coordinator(self) -> str:
        names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(_PREFIX)]
        if not names:
            return "none: all coordinators are being replaced"
        chosen = self._random.choice(sorted(names, key=str))
        # It may have ended meanwhile.
        with suppress(ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, ValueError):
            actor = ray.get_actor(chosen["name"], namespace=chosen["namespace"])
            os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0), signal.SIGKILL)
        return "coordinators of a broker"

    def leader(self) -> str:
        """Kill a leader of one of the topics, or of a coordinator's, once its replicas are all in sync. RaylogError."""
        topic = self._random.choice(self._topics)
        if not _comes_true(lambda: self._can_lose_one(topic), _WHOLE_SECONDS):
            return "none: a partition is not whole"
        leaders = [each for each in self._cluster.describe_replicas(topic) if each.role == "leader"]
        os.kill(self._random.choice(leaders).pid, signal.SIGKILL)
        return f"leader of {topic}"

    def _can_lose_one(self, topic: str) -> bool:
        partitions = self._cluster.describe_topic(topic).partitions
        return all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in partitions)


def _comes_true(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
