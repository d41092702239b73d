"""The message that spreads secrets among the cluster's own processes (`cluster_secrets.py`). Kind 160."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.messages import Message, message


@message(kind=160)
@dataclass(frozen=True, slots=True, repr=False)
class KeepSecrets(Message):
    """Sent by the controller to brokers and coordinators, and from a broker to its processes: hold these from now on.

    A broker answers with Done once they are on its disk. Nothing prints them.
    """

    version: int
    internal: tuple[bytes, ...]
    client: tuple[bytes, ...]
    previous_until_ms: int

    @classmethod
    def of(cls, held: ClusterSecrets) -> KeepSecrets:
        return cls(held.version, held.internal, held.client, held.previous_until_ms)

    @property
    def secrets(self) -> ClusterSecrets:
        return ClusterSecrets(self.version, self.internal, self.client, self.previous_until_ms)

    def __repr__(self) -> str:
        return f"KeepSecrets(version={self.version}, ...)"
