"""The brokers that vote on the metadata log (rule 17): three, once there are three to choose from.

They are also watched: a controller ends where too few of them still follow it.

What must stay true:
- A voter is replaced only by a broker that is there, and only after it was away for long, is about to leave, or is gone
  for ever. One that comes back within that time finds itself a voter still; but not with another directory: then it
  is another voter, which takes the place of its former self.
- A controller that no majority follows decides nothing that counts. It may have been replaced without hearing of it, so
  it gives up after a while; the next one begins with the brokers' promises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from raylog.actors.controller.changes import ClusterChanges
from raylog.actors.metadata_log.promises import voters_text
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.errors import (
    ControllerFenced,
    ControllerStopped,
    MetadataQuorumUnavailable,
    TooManyBytesInFlight,
    VotersNotChanged,
)

VOTERS: Final = 3

_LOOK_SECONDS: Final = 1.0
_AWAY_SECONDS: Final = 60.0
_MAJORITY_SECONDS: Final = 10.0
_CHANGE_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)


class VoterUpkeep:
    """`give_up` is called with the reason when the majority was away for too long."""

    def __init__(
        self, changes: ClusterChanges, writer: MetadataWriter, give_up: Callable[[BaseException], None]
    ) -> None:
        self._changes = changes
        self._writer = writer
        self._give_up = give_up
        self._loop = asyncio.get_running_loop()
        self._seen: dict[Voter, float] = {}  # voters: when each was last alive
        self._majority_at = self._loop.time()  # when a majority last followed

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self._check_majority()
            wanted = self.wanted()
            if wanted == self._writer.voters:
                continue
            try:
                await self._writer.change_voters(wanted, timeout=_CHANGE_SECONDS)
            except (VotersNotChanged, TooManyBytesInFlight) as error:
                _log.warning("%s", error)
            except (ControllerFenced, ControllerStopped):
                return

    def _check_majority(self) -> None:
        now, voters = self._loop.time(), self._writer.voters
        following = self._writer.connected().intersection(voters)
        if 2 * len(following) > len(voters):
            self._majority_at = now
        elif now - self._majority_at > _MAJORITY_SECONDS:
            waited_ms = int((now - self._majority_at) * 1000)
            self._give_up(MetadataQuorumUnavailable(voters_text(voters), voters_text(following), waited_ms))

    def wanted(self) -> tuple[Voter, ...]:
        """The present voters that stay, and others in place of those that do not, as far as there are others."""
        present = self._writer.voters
        others = [each for each in self._usable() if each not in present]
        staying = [each for each in present if self._stays(each)]
        leaving = [each for each in present if each not in staying]
        enough = VOTERS if len(staying) + len(others) >= VOTERS else len(present)
        new = others[: max(0, enough - len(staying))]
        replaced = {broker_id for broker_id, _ in new}  # by themselves, on another disk
        kept = [each for each in leaving if each[0] not in replaced]
        kept = kept[: max(0, enough - len(staying) - len(new))]  # no broker to take their place
        return tuple(sorted(staying + new + kept))

    def _stays(self, voter: Voter) -> bool:
        broker_id, directory_id = voter
        broker = self._changes.state.brokers.get(broker_id)
        if broker is None or broker.draining or broker.directory_id != directory_id:
            return False
        now = self._loop.time()
        if broker_id in self._changes.live.brokers:
            self._seen[voter] = now
        return now - self._seen.setdefault(voter, now) < _AWAY_SECONDS

    def _usable(self) -> list[Voter]:
        """All that may vote, those with the fewest replicas first."""
        state = self._changes.state
        usable = [each for each in state.brokers if state.is_usable(each, self._changes.live)]
        usable.sort(key=lambda each: (state.replica_count(each), each))
        return [(each, state.brokers[each].directory_id) for each in usable]
