"""Settings of the gateways for Kafka clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from raylog.actors.protocol.endpoint import Endpoint
from raylog.errors import InvalidConfig

ANY_PORT: Final = 0
PLAINTEXT: Final = "PLAINTEXT"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
_PROTOCOLS: Final = (PLAINTEXT, SASL_PLAINTEXT)
_HIGHEST_PORT: Final = 65_535
_EVERYWHERE: Final = ("0.0.0.0", "::")


class HostPort(NamedTuple):
    """An address of TCP. `str()` gives its form for people, and for Kafka's `bootstrap.servers`."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, setting: str = "kafka") -> HostPort:
        """Return the address whose `str()` is `text`. InvalidConfig names `setting`."""
        host, _, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        is_number = port.isascii() and port.isdecimal() and int(port) <= _HIGHEST_PORT
        if not bare or not is_number or (":" in bare and bare == host):
            raise InvalidConfig(setting, text, "HOST:PORT, with an IPv6 address in brackets")
        return cls(bare, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class KafkaListeners:
    """The gateways of a cluster: one beside each broker. `listen` is that of the first broker of a node.

    `advertised`: what clients are told instead, of all gateways alike. `maker`: what makes the core of a gateway, by
    dotted name, since its package is one that a broker does not import. `protocol`: Kafka's name for whether clients
    say who they are (SASL).
    """

    listen: HostPort
    advertised: HostPort | None
    maker: str = "raylog.api.kafka.gateway_process.make"
    protocol: str = PLAINTEXT

    def __str__(self) -> str:
        listen = str(self.listen) if self.protocol == PLAINTEXT else f"{self.protocol}://{self.listen}"
        return listen if self.advertised is None else f"{listen} (advertised as {self.advertised})"

    def of_broker(self, place: int) -> KafkaListeners:
        """Return the listener of a broker, by its place among those of its node: they have consecutive ports.

        InvalidConfig: there is no such port.
        """
        host, port = self.listen
        if port == ANY_PORT:
            return self
        if port + place > _HIGHEST_PORT:
            raise InvalidConfig("kafka", str(self.listen), f"{place} free ports above it, for brokers of one node")
        return replace(self, listen=HostPort(host, port + place))


def kafka_listeners(listen: str | None, advertised: str | None) -> KafkaListeners | None:
    """Return the listeners of the options `kafka` and `kafka_advertised`. None: none. InvalidConfig."""
    if listen is None:
        if advertised is not None:
            raise InvalidConfig("kafka_advertised", advertised, "nothing where Kafka clients are not served (`kafka`)")
        return None
    told = None if advertised is None else HostPort.parse(advertised, "kafka_advertised")
    protocol, separator, address = listen.rpartition("://")
    if not separator:
        protocol = PLAINTEXT
    if protocol not in _PROTOCOLS:
        raise InvalidConfig("kafka", listen, f"HOST:PORT, perhaps with {' or '.join(_PROTOCOLS)} and :// before it")
    return KafkaListeners(HostPort.parse(address), told, protocol=protocol)


@dataclass(frozen=True)
class GatewaySpec:
    """Settings that a gateway gets at its start."""

    cluster: str  # its name, for metrics
    broker_id: int
    broker: Endpoint
    node_id: str
    node_host: str
    listen: HostPort
    advertised: HostPort | None
    protocol: str = PLAINTEXT

    def address(self, port: int) -> HostPort:
        """Return what clients are told where it listens at this port."""
        host = self.listen.host
        return self.advertised or HostPort(self.node_host if host in _EVERYWHERE else host, port)
