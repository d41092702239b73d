"""Changes to topics, partitions and brokers that the cluster refuses."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class AdminError(RaylogError):
    """The cluster refuses a change that was asked for. Nothing was changed."""


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
    """A topic of this name exists already."""

    advice = "Use the existing topic, or choose another name."

    topic: str

    def describe(self) -> str:
        return f"Topic {self.topic!r} exists already."


class InvalidTopicName(AdminError):
    """A topic cannot have this name."""

    advice = "A name has 1 to 249 letters, digits, dots, underscores and hyphens, and is not '.' or '..'."

    topic: str
    reason: str

    def describe(self) -> str:
        return f"A topic cannot be named {self.topic!r}: {self.reason}."


class InternalTopic(AdminError):
    """The topic is internal: coordinators keep the state of groups or of transactions in it."""

    advice = "Use a topic of your own. Change groups and transactions through the `Cluster` handle."

    topic: str

    def describe(self) -> str:
        return f"Topic {self.topic!r} is internal: only coordinators write to it, and only compaction removes records."


class PolicyViolation(AdminError):
    """The topic's `cleanup.policy` does not allow what was asked for."""

    advice = "Set cleanup.policy to one with 'delete'; or, with 'compact', send a record without a value for each key."

    topic: str
    policy: str

    def describe(self) -> str:
        return f"Records of {self.topic!r} cannot be deleted by offset: its cleanup.policy is {self.policy!r}."


class InvalidPartitions(AdminError):
    """A topic cannot have this number of partitions."""

    advice = "A topic has at least 1 partition, and their number only grows."

    topic: str
    partitions: int
    reason: str

    def describe(self) -> str:
        return f"Topic {self.topic!r} cannot have {self.partitions} partitions: {self.reason}."


class InvalidReplicationFactor(AdminError):
    """A partition cannot have this number of replicas."""

    advice = "Each replica needs a broker of its own: start more brokers, or ask for fewer replicas."

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
        return f"The replicas of {self.topic}-{self.partition} cannot be placed like this: {self.reason}."


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
    """A broker cannot be removed or drained now."""

    advice = "Drain it first (`drain_broker`). Enough other brokers have to run to take over its replicas."

    broker: int
    reason: str

    def describe(self) -> str:
        return f"Broker {self.broker} cannot leave: {self.reason}."


class NoReassignment(AdminError):
    """There is no reassignment to cancel."""

    advice = "It may be complete by now: look at the topic's description."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is not being reassigned."


class ElectionNotNeeded(AdminError):
    """The partition already has the leader that an election would choose."""

    advice = "Nothing needs to be done."

    topic: str
    partition: int
    leader: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} is led by broker {self.leader} already."


class PreferredLeaderNotAvailable(AdminError):
    """The first replica of a partition cannot lead it now."""

    retriable = True
    advice = "Start its broker, and wait until the replica is in sync."

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
        "set-aside ones, and what each choice loses."
    )

    topic: str
    partition: int

    def describe(self) -> str:
        return f"No replica that may lead {self.topic}-{self.partition} is running."


class NeverLed(AdminError):
    """The partition has never had a leader, so there is nothing to recover."""

    retriable = True
    advice = "Start its brokers: the partition gets a leader as soon as one of its replicas runs."

    topic: str
    partition: int

    def describe(self) -> str:
        return f"{self.topic}-{self.partition} has never had a leader."


class LossNotAccepted(AdminError):
    """Electing this copy may lose acknowledged records, and the loss was not accepted."""

    advice = "Nothing was changed. If there is no better copy, accept the loss (`--accept-loss`)."

    topic: str
    partition: int
    broker: int
    loss: str

    def describe(self) -> str:
        return f"Electing broker {self.broker} as leader of {self.topic}-{self.partition} may lose {self.loss}."


class SetAsideUnknown(AdminError):
    """No broker that answered has a set-aside log of this name."""

    advice = "`raylog log list-aside` shows all of them, and the brokers that did not answer."

    name: str

    def describe(self) -> str:
        return f"There is no set-aside log {self.name!r}."


class SetAsideUnusable(SetAsideUnknown):
    """A set-aside log cannot replace a replica."""

    advice = "Nothing was changed. `raylog log dump` shows its intact records."

    reason: str

    def describe(self) -> str:
        return f"The set-aside log {self.name!r} cannot be used: {self.reason}."
