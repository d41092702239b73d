"""Users and access rules as all parts of raylog name them: Kafka's numbers, under Kafka's names."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
EVERYBODY: Final = "User:*"  # as a principal: each of them
ANY_HOST: Final = "*"
ANY_NAME: Final = "*"  # as a literal name: each of them
CLUSTER_NAME: Final = "kafka-cluster"  # of the only resource of its type


class ResourceType(IntEnum):
    """Kinds of things that an access rule is about. `ANY` is for filters only."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class ACLOperation(IntEnum):
    """Ways of using a resource. `ANY` is for filters only; `ALL` stands for each of those below it."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class ACLPermissionType(IntEnum):
    """The two things that a rule can say. `ANY` is for filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class ACLResourcePatternType(IntEnum):
    """Ways in which a rule names its resources. `ANY` and `MATCH` (all rules that hold for a name) are for filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AccessRule(NamedTuple):
    """One rule. Two that are equal are the same rule. The numbers are those of the enumerations above."""

    resource_type: int
    name: str
    pattern_type: int
    principal: str  # User:NAME
    host: str  # an address as it is written, or ANY_HOST
    operation: int
    permission: int
