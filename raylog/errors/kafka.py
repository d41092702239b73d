"""Kafka's wire protocol, as a gateway speaks it."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class KafkaProtocolError(RaylogError):
    """A Kafka client cannot be served."""


class MalformedRequest(KafkaProtocolError):
    """A message of Kafka's protocol does not hold what its description says. Nothing of it was used."""

    advice = "The connection is closed. What sent this is no Kafka client, or it is broken."

    message: str
    version: int
    reason: str

    def describe(self) -> str:
        return f"A {self.message} of version {self.version} was refused: {self.reason}."


class UnsupportedRequestVersion(KafkaProtocolError):
    """A Kafka client asked for something, or for a version of it, that a gateway does not serve."""

    advice = "Let the client ask for the versions first (ApiVersions), as all clients since Kafka 0.10 do."

    api_key: int
    version: int

    def describe(self) -> str:
        return f"Version {self.version} of Kafka's request {self.api_key} is not served."


class UnknownTopicId(KafkaProtocolError):
    """A Kafka client named a topic by an id that no topic has: it was deleted, or is not known here yet."""

    retriable = True
    advice = "Kafka clients ask for metadata and go on by themselves."

    topic_id: str

    def describe(self) -> str:
        return f"There is no topic with the id {self.topic_id}."


class TooManyPartitionsAtOnce(KafkaProtocolError):
    """A Kafka client asked for more partitions in one request than are made at once. None were made."""

    advice = "Ask for them in several requests."

    partitions: int
    limit: int

    def describe(self) -> str:
        return f"The request asks for {self.partitions} partitions; up to {self.limit} are made at once."


class KafkaSchemasMissing(KafkaProtocolError, ImportError):
    """The descriptions of Kafka's messages are not installed."""

    advice = "Install the extra: pip install 'raylog[kafka]'."

    package: str

    def describe(self) -> str:
        return f"The gateway for Kafka clients needs the message schemas of the package {self.package}, version 3."


class KafkaAddressTaken(KafkaProtocolError):
    """A gateway cannot listen for Kafka clients at the address that it was given."""

    retriable = True
    advice = (
        "Stop what listens there, or name another address (`kafka=`, `--kafka`). Brokers of one node take consecutive "
        "ports, from that one on."
    )

    address: str
    broker: int
    reason: str

    def describe(self) -> str:
        return f"The gateway of broker {self.broker} cannot listen at {self.address}: {self.reason}."


class KafkaListenersDiffer(KafkaProtocolError):
    """A cluster that runs was started with other listeners for Kafka clients, or with none."""

    advice = "Leave `kafka` out to join it as it is. To change it, stop the cluster, and start it anew."

    cluster: str
    wanted: str
    present: str

    def describe(self) -> str:
        present = f"at {self.present}" if self.present else "nowhere"
        return f"The cluster {self.cluster!r} serves Kafka clients {present}, and not at {self.wanted}."


class KafkaClientTooSlow(KafkaProtocolError):
    """A Kafka client keeps memory of the gateway that others wait for: answers not taken, or a request half sent."""

    advice = (
        "Look whether the client hangs, or its network is slow. Smaller answers (`fetch.max.bytes`) need less memory, "
        "and clients of several brokers share what each gateway has."
    )

    held: int
    waited_ms: int

    def describe(self) -> str:
        return (
            f"A client moved less than the {self.held} bytes that it kept a gateway holding, for {self.waited_ms} ms "
            "in which others waited for memory."
        )


class SaslRefused(KafkaProtocolError):
    """A Kafka client has not proved who it is."""

    advice = "Correct user, password or mechanism (`raylog user list` shows them)."

    reason: str

    def describe(self) -> str:
        return f"SASL was refused: {self.reason}."


class NotAuthenticated(KafkaProtocolError):
    """A Kafka client asked for something, and has not said who it is, or is nobody any more."""

    advice = "Let it use SASL: security.protocol=SASL_PLAINTEXT, a mechanism, a user and a password."

    asked: str

    def describe(self) -> str:
        return f"The client has not said who it is: {self.asked}."
