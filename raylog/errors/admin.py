"""Changes to topics, partitions and brokers that the cluster refuses."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class AdminError(RaylogError):
    """A change to the cluster that was asked for is not possible; nothing was changed."""


class UnknownTopic(AdminError):
    """There is no topic of this name."""

    retriable = True  # as in Kafka: metadata may be older than the topic
    advice = "Create it, or correct its name."

    topic: str

    def describe(self) -> str:
        return f"There is no topic {self.topic!r}."


class UnknownPartition(UnknownTopic):
    """The topic has no partition of this number."""

    advice = "Partitions are numbered from 0; `create_partitions` adds some."

    partition: int

    def describe(self) -> str:
        return f"Topic {self.topic!r} has no partition {self.partition} here."


class TopicExists(AdminError):
    """A topic of this name is there already."""

    advice = "Use the one that is there, or another name."

    topic: str

    def describe(self) -> str:
        return f"There is a topic {self.topic!r} already."


class InvalidTopicName(AdminError):
    """A topic cannot have this name."""

    advice = "A name has 1 to 249 letters, digits, dots, underscores and hyphens, and is not '.' or '..'."

    topic: str
    reason: str

    def describe(self) -> str:
        return f"A topic cannot be named {self.topic!r}: {self.reason}."


class InternalTopic(AdminError):
    """The topic is raylog's own: what is in it is its coordinators' memory of groups, or of transactions."""

    advice = "Use a topic of your own; groups and transactions are changed through the `Cluster` handle."

    topic: str

    def describe(self) -> str:
        return f"Topic {self.topic!r} is raylog's own: only its coordinators write to it, and only compaction removes."


class PolicyViolation(AdminError):
    """What was asked for is against the topic's `cleanup.policy`."""

    advice = "Send a record without a value for each key that is to go, or let cleanup.policy be 'compact,delete'."

    topic: str
    policy: str

    def describe(self) -> str:
        return f"Records of {self.topic!r} are not deleted by their offsets: its cleanup.policy is {self.policy!r}."


class InvalidPartitions(AdminError):
    """A topic cannot have so many partitions."""

    advice = "A topic has at least 1 partition, and their number only grows."

    topic: str
    partitions: int
    reason: str

    def describe(self) -> str:
        return f"Topic {self.topic!r} cannot have {self.partitions} partitions: {self.reason}."


class InvalidReplicationFactor(AdminError):
    """There cannot be so many replicas."""

    advice = "Every replica needs a broker of its own: start more brokers, or ask for fewer replicas."

    replication_factor: int
    brokers: int

    def describe(self) -> str:
        return f"A replication factor of {self.replication_factor} is impossible with {self.brokers} usable brokers."


class InvalidReplicaAssignment(AdminError):
    """A partition's replicas cannot be on the brokers that were named."""

    advice = "Name distinct brokers that are running, the same number for every partition."

    topic: str
    partition: int
    reason: str

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} cannot be placed so: {self.reason}."


class BrokerNotAvailable(AdminError):
    """The broker is not running, or is about to leave."""

    advice = "Name a broker that is running, or start this one again."

    broker: int
    reason: str

    def describe(self) -> str:
        return f"Broker {self.broker} is not available: {self.reason}."


class UnknownBroker(BrokerNotAvailable):
    """No broker of this number has ever registered."""

    def __init__(self, broker: int) -> None:
        super(BrokerNotAvailable, self).__init__(broker)  # it takes no reason
        self.broker = broker

    def describe(self) -> str:
        return f"There is no broker {self.broker}."


class BrokerInUse(AdminError):
    """A broker cannot be removed, or drained, as things are."""

    advice = "Drain it first (`drain_broker`), with other brokers there that can take over what it has."

    broker: int
    reason: str

    def describe(self) -> str:
        return f"Broker {self.broker} cannot leave: {self.reason}."


class NoReassignment(AdminError):
    """There is no reassignment to cancel."""

    advice = "It may have completed meanwhile: see the topic's description."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is not being reassigned."


class ElectionNotNeeded(AdminError):
    """The partition has the leader that an election would give it."""

    advice = "Nothing needs to be done."

    topic: str
    partition: int
    leader: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is led by broker {self.leader} already."


class PreferredLeaderNotAvailable(AdminError):
    """The first replica of a partition cannot lead it now."""

    retriable = True
    advice = "It can once its broker is running and the replica is in sync."

    topic: str
    partition: int
    preferred: int

    def describe(self) -> str:
        return f"Broker {self.preferred} is the preferred leader of {self.topic}-{self.partition}, but cannot lead it."


class EligibleLeadersNotAvailable(AdminError):
    """None of the replicas that could lead the partition is running."""

    retriable = True
    advice = (
        "Start the brokers that hold its replicas. `raylog topic recover` shows every copy there is, also damaged and "
        "set-aside ones, and what is lost by each choice."
    )

    topic: str
    partition: int

    def describe(self) -> str:
        return f"No replica that may lead {self.topic}-{self.partition} is running."


class NeverLed(AdminError):
    """The partition has never had a leader, so there is nothing to be recovered."""

    retriable = True
    advice = "It gets one as soon as one of its replicas runs."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has never had a leader."


class LossNotAccepted(AdminError):
    """To let this copy lead may lose acknowledged records, and nobody has said that this is accepted."""

    advice = "Nothing was changed. Where no better copy can be had, say that the loss is accepted (`--accept-loss`)."

    topic: str
    partition: int
    broker: int
    loss: str

    def describe(self) -> str:
        return f"To let broker {self.broker} lead {self.topic}-{self.partition} may lose {self.loss}."


class SetAsideUnknown(AdminError):
    """No log of this name has been set aside, as far as the brokers that were asked can tell."""

    advice = "`raylog log list-aside` shows all there are, and which brokers could not be asked."

    name: str

    def describe(self) -> str:
        return f"No log is set aside as {self.name!r}."


class SetAsideUnusable(SetAsideUnknown):
    """A log that was set aside cannot take the place of a replica."""

    advice = "Nothing was changed. `raylog log dump` reads what is sound in it."

    reason: str

    def describe(self) -> str:
        return f"The log that was set aside as {self.name!r} cannot be used: {self.reason}."
