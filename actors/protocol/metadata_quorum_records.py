"""The two records of the metadata log that are about the log itself. Kinds 100 and 101.

All others are in `metadata_records.py`. The log's own code does not look into those; code that folds the log also meets
the two of this module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from raylog.actors.protocol.messages import Message, message

Voter: TypeAlias = tuple[int, str]
"""(broker id, directory id). On another disk a broker is another voter, without the promises of the first."""


@message(kind=100)
@dataclass(frozen=True, slots=True)
class Voters(Message):
    """The voters from this record on, in rising order. It is in force from its append, not from its commit."""

    voters: tuple[Voter, ...]


@message(kind=101)
@dataclass(frozen=True, slots=True)
class ControllerStarted(Message):
    """The first record of every controller epoch. Its commit commits all that was adopted (rule 17)."""

    controller_epoch: int
