"""Reasons why a log is not relied upon before the controller has heard of it (rule 7).

    REBOOTED    open without fsync when its machine rebooted: its end may be gone
    RESTORED    a person has put a copy that was set aside in its place
    BLANK       created: whatever this replica held before is gone, by damage or with its disk

Only the first may be elected without a person: it holds what it acknowledged, but perhaps for the end. What must stay
true: these texts stand in checkpoints and in the metadata log, so they never change.
"""

from __future__ import annotations

from typing import Final

PROVEN: Final = ""
REBOOTED: Final = "machine crash"
RESTORED: Final = "restored"
BLANK: Final = "creation"

_RISING: Final = (PROVEN, REBOOTED, RESTORED, BLANK)


def may_be_elected(doubt: str) -> bool:
    """Whether a log of this doubt may lead without a person's word, if only in doubt."""
    return doubt in (PROVEN, REBOOTED)


def doubt_after_restart(reported: str, known: str) -> str:
    """Return what is doubted of a log, from what its process says and what was known of the process before.

    A process forgets a doubt as soon as it has been registered, so the worse of both counts; but one that found another
    directory than its predecessor speaks of that one alone.
    """
    if reported in (RESTORED, BLANK):
        return reported
    return max(reported, known, key=_severity)


def _severity(doubt: str) -> int:
    """A text that this version does not know is taken for the worst."""
    return _RISING.index(doubt) if doubt in _RISING else len(_RISING)
