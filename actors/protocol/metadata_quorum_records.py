"""The two records of the metadata log that are about the log itself. Kinds 100 and 101.

All others are in `metadata_records.py`. Here nothing looks into those, and whoever folds the log meets these as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from raylog.actors.protocol.messages import Message, message

Voter: TypeAlias = tuple[int, str]
"""broker id, directory id: on another disk a broker is another voter, which knows nothing of what the first one said"""


@message(kind=100)
@dataclass(frozen=True, slots=True)
class Voters(Message):
    """From this record on these, in rising order, are the voters. In force from its append, not its commit."""

    voters: tuple[Voter, ...]


@message(kind=101)
@dataclass(frozen=True, slots=True)
class ControllerStarted(Message):
    """In the first batch of every controller epoch. Its commit makes all that was adopted committed (rule 17)."""

    controller_epoch: int
