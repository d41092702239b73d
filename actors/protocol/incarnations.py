"""The numbers of replicas and hosts (rule 26): controller epoch, then a counter. So they rise across controllers."""

from __future__ import annotations

from typing import Final

_COUNTER_BITS: Final = 32

NO_INCARNATION: Final = -1


def incarnation_of(controller_epoch: int, counter: int) -> int:
    return controller_epoch << _COUNTER_BITS | counter


def epoch_of(incarnation: int) -> int:
    """Return the epoch of the controller that asked for the process; −1 for NO_INCARNATION."""
    return incarnation >> _COUNTER_BITS
