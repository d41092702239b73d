"""Ray's nodes that need a Java for Spark, and those where RayDP's master may be. Decides; touches nothing.

    nodes with CPUs     executors, which take whole CPUs, may come to any of them: each needs a Java
    nodes without       heads and the like: no executor comes there, but the master might, which takes no CPU

So the master is kept away from nodes without a Java. What is asked for is a trace of a resource that a good node has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from raylog.errors import RayWithoutJava

NODE: Final = "node:"  # and an address: a resource that Ray gives to each node


@dataclass(frozen=True)
class NodeLook:
    """The answer of a living node."""

    host: str
    has_cpus: bool
    missing: str  # why Spark's Java cannot run there; empty: it can


def place_of_master(looks: Sequence[NodeLook]) -> str:
    """The resource that keeps the master where a Java is; empty: one is everywhere. The first good node is taken.

    RayWithoutJava: executors may come to a node without one, or no place is left for the master.
    """
    without = [look for look in looks if look.missing]
    for look in without:
        if look.has_cpus:
            raise RayWithoutJava(look.host, look.missing)
    hosts = {look.host for look in without}
    places = [look.host for look in looks if look.host not in hosts]
    if without and not places:
        raise RayWithoutJava(without[0].host, without[0].missing)
    return f"{NODE}{places[0]}" if without else ""
