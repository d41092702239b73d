"""Pools as people and programs are shown them (`ConsumerPool.describe`, `Cluster.pools`)."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.cluster.html_tables import html_table


@dataclass(frozen=True, slots=True)
class PoolActorDescription:
    """One consumer of a pool."""

    name: str
    phase: str  # waiting, starting, running, stopping
    version: int  # of the handler; 0: not told yet
    node_id: str  # empty: not told yet
    pid: int
    partitions: int
    handled: int  # records
    error: str  # its last trouble; else empty


@dataclass(frozen=True, slots=True)
class PoolEvent:
    """A change of the pool, at this time (seconds since 1970)."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class PoolDescription:
    """A pool as its supervisor has seen it a second ago. What is counted of actors that are gone, and of deaths, begins
    anew with a supervisor.
    """

    group_id: str
    topics: tuple[str, ...]
    state: str  # idle, running, updating, halted, stopping
    min_actors: int
    max_actors: int
    wanted: int
    reason: str  # why so many
    lag: int  # records
    arrival: float  # records a second
    actor_rate: float | None  # records a second that one busy actor does; None: not known yet
    version: int  # of the handler
    handled: int  # records
    failed: int  # attempts
    put_aside: int  # records
    deaths: int  # of actors, that nobody had asked for
    problem: str  # what a person should see to; else empty
    actors: tuple[PoolActorDescription, ...]
    events: tuple[PoolEvent, ...]

    @property
    def running(self) -> int:
        """The number of actors that work."""
        return sum(each.phase == "running" for each in self.actors)

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with a row for each actor."""
        problem = f", {self.problem}" if self.problem else ""
        count = f"{self.running} of {self.wanted} actors"
        heading = f"Pool {self.group_id!r}: {self.state}, {count}, lag {self.lag}{problem}"
        columns = ("actor", "phase", "version", "node", "partitions", "handled", "error")
        rows = [
            (each.name, each.phase, each.version, each.node_id[:8], each.partitions, each.handled, each.error)
            for each in self.actors
        ]
        return html_table(heading, columns, rows)
