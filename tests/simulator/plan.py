"""The plan of a seed: how many brokers, which topic, what it promises, and so which faults it may meet.

A promise is that acknowledged records survive so and so much. What may be done to the cluster is derived from it in
one place, so that the faults never take more than was promised to survive:

    flush.policy=fsync                     any number of machines may lose their power, again and again
    replicated, min.insync.replicas ≥ 2    one machine's power, disk or data at a time, until all of it is in sync;
                                           and all machines at once, if what no disk held is taken into account
    replicated, min.insync.replicas = 1    processes and streams only: one page cache may be the only one
    "last copies"                          the same, and the last copy of all; then a person chooses (`chooser.py`)

Elections may be unclean: then anything may be lost, and all replicas still have to become the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

TOPIC = "topic"
OTHER_TOPIC = "other"  # nobody writes to it; the operator makes it and deletes it, again and again

# What goes wrong more often than all else, with a cluster that suits it. The empty one: everything alike.
THEMES = ("", "", "", "races", "divorces", "controllers", "lost copies", "power")
LAST_COPIES = "last copies"  # not among the themes: the seeds of others keep their meaning
FORGETFUL = "forgetful voters"  # of every fourth seed with the theme of controllers
OLDER_COPIES = "older copies"  # of every so many seeds, as those without their last copies
_EVERY = 32
_ROT = 0.3  # of the seeds without a theme are about rot
_MUCH = str(10**15)


@dataclass(frozen=True)
class Plan:
    brokers: int
    partitions: int
    replication: int
    min_insync: int
    is_fsync: bool
    is_unclean: bool
    may_delete: bool  # a reader deletes what it has read
    has_operator: bool  # somebody who reassigns, drains, and changes settings meanwhile
    fault_seconds: float
    longest_pause: float  # between two faults
    disk_slowness: float  # of work beside the event loop; a slow sync leaves more that is not synced
    lag_ms: int = 2000  # replica.lag.time.max.ms; below a lease the leader gives a follower up before the controller
    other_settings: dict[str, str] = field(default_factory=dict)
    theme: str = ""
    own_replicas: int = 4  # of a broker, that have a process each; all others share one

    @classmethod
    def drawn(cls, random: Random) -> Plan:
        brokers = random.choice((3, 3, 3, 4, 5))
        replication = random.choice((3, 3, 3, 3, 3, 2, 1))
        other_settings = {}
        if random.random() < 0.4:
            other_settings["segment.bytes"] = random.choice(("700", "2000"))
        plan = cls(
            brokers=brokers,
            partitions=random.choice((1, 1, 2)),
            replication=replication,
            min_insync=min(replication, random.choice((2, 2, 2, 2, 1, 3))),
            is_fsync=random.random() < 0.2,
            is_unclean=random.random() < 0.07,
            may_delete=random.random() < 0.15,
            has_operator=random.random() < 0.4,
            fault_seconds=random.uniform(3.0, 9.0),
            longest_pause=random.choice((0.4, 1.0, 1.5)),
            disk_slowness=random.choice((1.0, 1.0, 10.0, 50.0)),
            lag_ms=random.choice((300, 2000)),
            other_settings=other_settings,
            theme=random.choice(THEMES),
        )
        return plan._suited(random)._perhaps_rotting(random)

    def _perhaps_rotting(self, random: Random) -> Plan:
        """Drawn from a copy, so that all other seeds stay what they are."""
        own = Random()
        own.setstate(random.getstate())
        if self.theme or own.random() >= _ROT:
            return self
        copies = own.choice((2, 3, 3))
        # With an index of short steps an opening reads only the ends of segments, so that bits rot in between.
        small = {"segment.bytes": own.choice(("700", "2000")), "index.interval.bytes": "200"}
        return replace(
            self, theme="rot", replication=copies, min_insync=own.choice((1, 2)), is_unclean=False,
            other_settings=small if own.random() < 0.8 else self.other_settings,
        )  # fmt: skip

    def of_seed(self, seed: int) -> Plan:
        """One in so many has its last copies taken away; in many, processes hold several replicas."""
        return self._lacking_copies(seed)._forgetting(seed)._restoring(seed)._sharing(Random(f"hosts of {seed}"))

    def _sharing(self, random: Random) -> Plan:
        own = random.choice((4, 4, 1, 0, 0))
        return self if own == 4 else replace(self, own_replicas=own, partitions=random.choice((2, 2, 3, 4)))

    def _lacking_copies(self, seed: int) -> Plan:
        if seed % _EVERY != _EVERY - 1:
            return self
        random = Random(seed)
        return replace(
            self, theme=LAST_COPIES, replication=random.choice((1, 2, 3, 3, 3)), min_insync=1, is_fsync=False,
            is_unclean=False, may_delete=False, lag_ms=300, fault_seconds=random.uniform(8.0, 16.0), longest_pause=1.5,
            has_operator=False, other_settings={"segment.bytes": "700"},
        )  # fmt: skip

    def _forgetting(self, seed: int) -> Plan:
        if self.theme != "controllers" or seed % 4 != 1:
            return self
        return replace(self, theme=FORGETFUL, min_insync=2, is_unclean=False, fault_seconds=self.fault_seconds + 8.0)

    def _restoring(self, seed: int) -> Plan:
        """Give disks that are not slow: the mark of a broker that is registered is to rise soon."""
        if seed % _EVERY != _EVERY // 2 - 1:
            return self
        return replace(
            self, theme=OLDER_COPIES, replication=3, min_insync=2, is_fsync=False,
            is_unclean=False, may_delete=False, fault_seconds=self.fault_seconds + 16.0, disk_slowness=1.0,
        )  # fmt: skip

    def _suited(self, random: Random) -> Plan:
        """Return the plan suited to its theme."""
        if self.theme == "races":
            return replace(self, replication=3, min_insync=2, is_unclean=False)
        if self.theme == "controllers":  # fewer voters than brokers: a minority of them may be able to do much
            minimum = random.choice((1, 2))
            return replace(self, brokers=random.choice((3, 4, 5)), replication=3, min_insync=minimum, lag_ms=300)
        if self.theme == "divorces":  # the controller is to be elsewhere
            return replace(self, brokers=max(4, self.brokers), replication=2, min_insync=2, is_unclean=False)
        if self.theme == "lost copies":  # who leaves the ISR stays eligible
            copies = random.choice((2, 2, 3))
            return replace(self, replication=copies, min_insync=copies, is_fsync=False, is_unclean=False)
        if self.theme == "power":
            is_fsync = random.random() < 0.7
            slow = random.choice((50.0, 200.0))
            copies = random.choice((1, 2, 3)) if is_fsync else 3
            return replace(
                self, replication=copies, min_insync=min(copies, max(2, self.min_insync)), is_fsync=is_fsync,
                is_unclean=False, may_delete=False, disk_slowness=slow,
            )  # fmt: skip
        return self

    @property
    def settings(self) -> dict[str, str]:
        # Clocks jump by a day here. A batch that is refused for its timestamp would be refused for ever, and neither a
        # record nor a producer may be forgotten for its age.
        return {
            "message.timestamp.after.max.ms": _MUCH,
            "replica.lag.time.max.ms": str(self.lag_ms),
            "retention.ms": "-1",
            "producer.id.expiration.ms": _MUCH,
            "min.insync.replicas": str(self.min_insync),
            "flush.policy": "fsync" if self.is_fsync else "replicated",
            "unclean.leader.election.enable": "true" if self.is_unclean else "false",
            **self.other_settings,
        }

    # --- what may be done ---

    @property
    def least_insync(self) -> int:
        """Return the least that `min.insync.replicas` may be changed to."""
        return 1 if self.is_fsync or self.min_insync == 1 else 2

    @property
    def least_copies(self) -> int:
        """Nor below this with the replication factor."""
        return max(self.min_insync, self.least_insync)

    @property
    def may_lose_copies(self) -> bool:
        """A machine's power, its disk or its data, one at a time."""
        return self.is_fsync or self.is_unclean or self.min_insync >= 2

    @property
    def may_lose_data(self) -> bool:
        """Tell whether a disk may lose synced data as well: more than one copy has to be promised for that."""
        return self.is_unclean or self.min_insync >= 2

    @property
    def may_lose_last(self) -> bool:
        """The last copy there is, as far as the record tells."""
        return self.theme == LAST_COPIES

    @property
    def may_crash_all(self) -> bool:
        return self.is_fsync or self.is_unclean

    @property
    def may_crash_all_once(self) -> bool:
        """Tell whether all machines may crash once, to look for what survived. Deletions would confuse that."""
        return not (self.may_crash_all or self.may_delete) and self.min_insync >= 2
