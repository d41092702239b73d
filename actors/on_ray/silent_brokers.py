"""Telling which brokers are slow and which hang, of those that run by Ray's word and are not registered.

    not registered ──for 5 s──► asked ──it answers──► asked again, for as long as it answers
                                  └──no answer──► it hangs: to be ended, and made anew

What must stay true: a broker that answers is not ended, however long its registration takes. It may be closing what an
earlier process left, or wait for a controller. If it is refused for good, it ends by itself.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

PATIENCE_SECONDS: Final = 5.0


class SilentBrokers:
    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def due(self, silent: Set[int], now: float) -> list[int]:
        """Return the brokers to ask now whether they answer. Each is not returned again for a while."""
        self._since = {broker: self._since.get(broker, now) for broker in silent}
        due = [broker for broker, since in self._since.items() if now - since > PATIENCE_SECONDS]
        self._since.update(dict.fromkeys(due, now))
        return due
