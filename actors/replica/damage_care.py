"""Damage in a replica's own log: how it is found, and how the replica is relieved (rules 1, 14).

    somebody names an offset, or a read of ours meets damage
      └─► inspected beside the loop ──► sound: whoever asked fetches again
                                  └──► damaged: not served any more; asks to be relieved, again and again
                                         ├─► relieved: goes offline, is quarantined, set aside, and fetched anew
                                         └─► nobody else in sync is alive: stays, and serves all other offsets

A replica without another one in sync stays, since its copy is the only one. Without it nothing of the partition could
be read, for the sake of one batch.

What must stay true:
- It goes offline for its damage only after the controller has recorded that others have what it has (`standing_down`).
- What a client says costs little: one inspection at a time, of one batch, the same segment once in a while (rule 34).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.kernel.stream_interface import Answer
from raylog.actors.replica.hosted_log import HostedLog
from raylog.errors import (
    DiskError,
    EligibleLeadersNotAvailable,
    InspectionUnderWay,
    LogDamaged,
    LogOffline,
    OffsetOutOfRange,
    OnlyCopyDamaged,
    RaylogError,
    RemoteFailed,
)
from raylog.storage.segment.damaged_ranges import DamagedRange, Spot, inspect_spot, range_of
from raylog.storage.segment.segment import LOG_SUFFIX

_SAME_SEGMENT_SECONDS: Final = 2.0  # between inspections of one that was found sound
_ANSWER_SECONDS: Final = 1.0  # to wait for what becomes of a damaged copy
_RETRY_SECONDS: Final = 0.2
_ALONE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)

StandDownCall: TypeAlias = Callable[[bool, str], Awaitable[None]]


class DamageCare:
    """Looks into the log of one replica. `stand_down(is_damaged, reason)` asks the controller to relieve it."""

    def __init__(self, hosted: HostedLog, stand_down: StandDownCall) -> None:
        self._hosted = hosted
        self._log = hosted.log
        self._stand_down = stand_down
        self._loop = asyncio.get_running_loop()
        self._is_inspecting = False
        self._sound: dict[int, float] = {}  # base offset of a segment: when a batch of it was found sound
        self._leaving: asyncio.Task[None] | None = None
        self._is_decided = asyncio.Event()  # relieved, or alone
        self._log.when_damaged = self.heard

    # --- being told -----------------------------------------------------------------------------------------------

    async def suspect(self, offset: int) -> Answer:
        """Inspect the batch of this offset; returns where it is sound here.

        OffsetOutOfRange; InspectionUnderWay: ask again later; OnlyCopyDamaged: nobody else could lead.
        """
        held = self._log.damaged.holding(offset)
        if held is None:
            await self._inspect_batch(offset)
            held = self._log.damaged.holding(offset)
            if held is None:
                return None
        try:
            await asyncio.wait_for(self._is_decided.wait(), _ANSWER_SECONDS)
        except asyncio.TimeoutError:
            _log.info("%s: what becomes of its damaged copy is not decided yet.", self._hosted.name)
        name = self._hosted.name
        if self._is_decided.is_set() and not self._is_offline():
            raise OnlyCopyDamaged(name.topic, name.partition, *held)
        raise InspectionUnderWay(name.topic, name.partition)

    def heard(self, damage: LogDamaged) -> None:
        """A read of the log itself has met it."""
        base, _, suffix = damage.path.rpartition("/")[2].partition(".")
        if f".{suffix}" != LOG_SUFFIX or not base.isdigit():
            self._log.go_offline(damage)  # not of a segment: nothing of this log can be believed
        elif not self._is_inspecting and all(damage.position != each.position for each in self._log.damaged):
            self._is_inspecting = True
            self._hosted.start(self._look_at(damage, int(base)))

    # --- inspecting -----------------------------------------------------------------------------------------------

    async def _inspect_batch(self, offset: int) -> None:
        name = self._hosted.name
        spot = self._log.spot_of(offset)
        segment, now = self._log.segments.containing(offset).base_offset, self._loop.time()
        self._sound = {base: when for base, when in self._sound.items() if when + _SAME_SEGMENT_SECONDS > now}
        if self._is_inspecting or segment in self._sound:
            raise InspectionUnderWay(name.topic, name.partition)
        self._is_inspecting = True
        try:
            if not await self._inspect(spot):
                self._sound[segment] = self._loop.time()
        except DiskError as error:
            raise InspectionUnderWay(name.topic, name.partition) from error
        finally:
            self._is_inspecting = False

    async def _look_at(self, damage: LogDamaged, base_offset: int) -> None:
        """A wrong length shows later than where it stands: then all of the segment is looked through."""
        try:
            for position in (damage.position, 0):
                with suppress(LogDamaged):  # an index has to be made again, and cannot be
                    if await self._inspect(self._log.spot_from(base_offset, position)):
                        return
            _log.warning("%s: damage was met that is not there any more: %s", self._hosted.name, damage)
        except (OffsetOutOfRange, LogOffline, DiskError) as error:
            _log.info("%s: %s is not looked into: %s", self._hosted.name, damage.path, error)
        finally:
            self._is_inspecting = False

    async def _inspect(self, spot: Spot) -> bool:
        """Whether damage was found, as the log still is."""
        log, shape = self._log, self._log.shape
        broken = await self._hosted.beside(partial(inspect_spot, self._hosted.env.disk, spot))
        if broken is None or log.shape != shape or log.offline_because is not None:
            return False
        if broken.place.base_offset < log.log_start_offset:
            return False
        self._take(range_of(log.segments.containing(broken.place.base_offset), broken))
        return True

    # --- what follows ---------------------------------------------------------------------------------------------

    def _take(self, found: DamagedRange) -> None:
        if not self._log.damaged.add(found):
            return
        _log.error(
            "%s: broker %d: offsets %d to %d are damaged in %s at byte %d: %s. They are served no more, and this "
            "replica lets another one lead if one is in sync.",
            self._hosted.name, self._hosted.me[0], found.first_offset, found.next_offset - 1, found.path,
            found.position, found.reason,
        )  # fmt: skip
        if self._leaving is None or self._leaving.done():
            self._is_decided.clear()
            self._leaving = self._hosted.start(self._leave(found))

    async def _leave(self, found: DamagedRange) -> None:
        while not self._is_offline():
            self._log.damaged.forget_below(self._log.log_start_offset)
            if not self._log.damaged:
                return  # they were deleted
            pause = _RETRY_SECONDS
            try:
                await self._stand_down(True, found.error().describe())
                self._log.go_offline(found.error())
                self._hosted.check_offline()
            except RaylogError as error:
                cause = error.error if isinstance(error, RemoteFailed) else error
                if isinstance(cause, EligibleLeadersNotAvailable):
                    self._stays(found)
                    pause = _ALONE_SECONDS
                else:
                    _log.info("%s: it asks again to be relieved: %s", self._hosted.name, error)
            if not self._is_offline():
                await asyncio.sleep(pause)
        self._is_decided.set()

    def _is_offline(self) -> bool:
        return self._log.offline_because is not None

    def _stays(self, found: DamagedRange) -> None:
        if not self._is_decided.is_set():
            self._is_decided.set()
            name = self._hosted.name
            alone = OnlyCopyDamaged(name.topic, name.partition, *found)
            _log.error("%s: broker %d stays: %s", name, self._hosted.me[0], alone)
