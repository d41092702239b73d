"""The secrets of a cluster. Both sides of a new stream prove that they hold one of them (`admission.py`).

    internal    brokers, replicas, housekeepers, coordinators, the controller
    client      producers, consumers, Spark's workers; and all of the former, to admit them

Both are drawn when the cluster is formed, and again by `secret_rotation.py`. From then on new streams are dialled with
the new ones, and for a while the old ones are accepted too. A set has a version. Of two sets the one with the higher
version counts: in a process, on disk, and in what a new process is told.

Over the network secrets go through Ray, and over streams that have proved to be internal. Nothing prints them: the
`repr` of a set does not contain them, and so no log line and no traceback does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

SECRET_BYTES: Final = 32


class Standing(Enum):
    """The rights of the holder of a key (rule 33)."""

    INTERNAL = b"internal"  # a process of it: broker, replica, housekeeper, coordinator, controller
    CLIENT = b"client"


class Key(NamedTuple):
    """A secret, and what its holders may do."""

    standing: Standing
    secret: bytes

    def __repr__(self) -> str:
        return f"Key({self.standing.name}, ...)"


@dataclass(frozen=True, repr=False)
class ClusterSecrets:
    """One set of secrets. The newest of each kind stands first; a client's set has no internal ones."""

    version: int
    internal: tuple[bytes, ...]
    client: tuple[bytes, ...]
    previous_until_ms: int = 0

    @classmethod
    def draw(cls) -> ClusterSecrets:
        return cls(1, (_draw(),), (_draw(),))

    def __repr__(self) -> str:
        return f"ClusterSecrets(version={self.version}, ...)"

    @property
    def keys(self) -> tuple[Key, ...]:
        """Return all keys that are valid."""
        return (
            *(Key(Standing.INTERNAL, each) for each in self.internal),
            *(Key(Standing.CLIENT, each) for each in self.client),
        )

    @property
    def own_keys(self) -> tuple[Key, ...]:
        """Return the keys that its holder dials with, the newest first."""
        if self.internal:
            return tuple(Key(Standing.INTERNAL, each) for each in self.internal)
        return tuple(Key(Standing.CLIENT, each) for each in self.client)

    @property
    def has_previous(self) -> bool:
        return len(self.internal) > 1 or len(self.client) > 1

    def rotated(self, until_ms: int) -> ClusterSecrets:
        """Return a set of new secrets. The newest of this set stay valid beside them until then."""
        return ClusterSecrets(
            self.version + 1, (_draw(), *self.internal[:1]), (_draw(), *self.client[:1]), until_ms
        )

    def without_previous(self) -> ClusterSecrets:
        return ClusterSecrets(self.version + 1, self.internal[:1], self.client[:1])

    def for_clients(self) -> ClusterSecrets:
        """Return the part of this set that clients may hold."""
        return ClusterSecrets(self.version, (), self.client, self.previous_until_ms)


def _draw() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


class KeyRing:
    """The set that a process holds. `on_change` is called when it becomes another one."""

    def __init__(self, held: ClusterSecrets, on_change: Callable[[], None] = lambda: None) -> None:
        self._held = held
        self._on_change = on_change
        self._of_clients: list[KeyRing] = []

    @property
    def secrets(self) -> ClusterSecrets:
        return self._held

    def keys(self) -> tuple[Key, ...]:
        return self._held.keys

    def for_clients(self) -> KeyRing:
        """Return a ring with what clients may hold of this one, from now on."""
        ring = KeyRing(self._held.for_clients())
        self._of_clients.append(ring)
        return ring

    def adopt(self, found: ClusterSecrets) -> bool:
        """Take over a set, if it is later than the held one. Return whether it is."""
        if found.version <= self._held.version:
            return False
        self._held = found
        for ring in self._of_clients:
            ring.adopt(found.for_clients())
        self._on_change()
        return True
