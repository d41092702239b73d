"""Scrubbing: reads every sealed segment of a broker's replicas now and then, and reports damage (rule 1).

    a replica is due ──► its sealed segments, the oldest first, so many bytes a second ──► done, until it is due again
                              └─ one is not sound: its replica is told, and looks itself

What must stay true:
- One segment at a time is read, and no faster than its topic's `scrub.bytes.per.second`; so it is what all replicas of
  the broker cost together.
- How far it is, is on the disk: a process that is killed often gets through all the same. That file may be lost; then
  the reading begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import SCRUB_AGE_SECONDS, SCRUB_BYTES, SCRUB_SUSPECTS, Reading
from raylog.actors.protocol.names import METADATA_TOPIC
from raylog.config import MIB, NO_LIMIT, TopicConfig
from raylog.errors import DiskError, InspectionUnderWay, LogDamaged, RaylogError, RemoteFailed, UnsupportedFormat
from raylog.storage.directory.data_directory import replica_names
from raylog.storage.directory.partition_directory import PARTITION_FILE
from raylog.storage.disk.checkpoints import Body, read_checkpoint, write_checkpoint
from raylog.storage.segment.scrubbing import Scrubbed, ScrubPlace, scrub_piece, sealed_segments

PROGRESS_FILE: Final = "scrub-progress"
_VERSION: Final = 1
_PIECE_BYTES: Final = MIB
_LOOK_SECONDS: Final = 60.0
_TELL_AGAIN_SECONDS: Final = 3.0  # more than a replica waits before it looks into the same segment again
_TELLS: Final = 5

_log = logging.getLogger(__name__)

TellCall: TypeAlias = Callable[[bytes, int, int], Awaitable[None]]


@dataclass(slots=True)
class Progress:
    """Progress in one replica: its topic, when the present or last reading began, and how far it is (−1: done)."""

    topic_id: str
    begun_ms: int
    next_base: int = 0

    @property
    def is_through(self) -> bool:
        return self.next_base < 0


@dataclass(frozen=True, slots=True)
class _Replica:
    name: str
    directory: str
    topic_id: str
    partition: int
    config: TopicConfig


class Scrubber:
    """Reads the segments of one broker. `tell(topic id, partition, offset)` gets a suspicion to its replica."""

    def __init__(self, env: Environment, directory: str, tell: TellCall) -> None:
        self._env = env
        self._directory = directory
        self._tell = tell
        self._progress: dict[str, Progress] = {}
        self._is_reading = False
        self._worked_at = asyncio.get_running_loop().time()
        self._unwritten = False  # replicas are through, and their segments were noted one by one
        self._bytes = 0
        self._suspects = 0

    def readings(self) -> Iterator[Reading]:
        """Metrics of the scrubber. The age is that of the replica whose last whole reading began the longest ago."""
        yield Reading(SCRUB_BYTES, (), self._bytes)
        yield Reading(SCRUB_SUSPECTS, (), self._suspects)
        if self._progress:
            oldest = min(each.begun_ms for each in self._progress.values())
            yield Reading(SCRUB_AGE_SECONDS, (), max(0, self._env.wall_ms() - oldest) / 1000)

    @property
    def idle_since(self) -> float | None:
        """Return when it last had anything to read, in the loop's time. None: it is looking for that, or reading."""
        return None if self._is_reading else self._worked_at

    async def run(self) -> None:
        """Read for ever."""
        self._progress = await self._env.off_loop(self._read_progress)
        while True:
            self._is_reading = True
            try:
                for replica in await self._env.off_loop(self._find):
                    await self._scrub_if_due(replica)
                if self._unwritten:  # of a thousand new replicas at once
                    await self._env.off_loop(self._write_progress)
            except DiskError as error:
                _log.warning("The scrubbing of %s waits: %s", self._directory, error)
            self._is_reading = False
            await asyncio.sleep(_LOOK_SECONDS * (0.5 + self._env.random.random()))

    # --- one replica ----------------------------------------------------------------------------------------------

    async def _scrub_if_due(self, replica: _Replica) -> None:
        progress, now_ms = self._progress.get(replica.name), self._env.wall_ms()
        interval_ms = replica.config.scrub_interval_ms
        if interval_ms == NO_LIMIT:
            return
        if progress is None or progress.topic_id != replica.topic_id:
            progress = self._progress[replica.name] = Progress(replica.topic_id, now_ms)
        elif progress.is_through:
            if progress.begun_ms <= now_ms < progress.begun_ms + interval_ms:
                return
            progress.begun_ms, progress.next_base = now_ms, 0  # also where the clock has gone back
        await self._scrub(replica, progress)

    async def _scrub(self, replica: _Replica, progress: Progress) -> None:
        segments = await self._env.off_loop(partial(sealed_segments, self._env.disk, replica.directory))
        for base, end in segments:
            if base < progress.next_base:
                continue
            await self._scrub_segment(replica, base, end)
            progress.next_base = end
            await self._env.off_loop(self._write_progress)
        progress.next_base = -1
        self._unwritten = True

    async def _scrub_segment(self, replica: _Replica, base: int, end: int) -> None:
        place: ScrubPlace | None = ScrubPlace(base)
        while place is not None:
            work = partial(scrub_piece, self._env.disk, replica.directory, place, end, _PIECE_BYTES)
            found: Scrubbed = await self._env.off_loop(work)
            self._bytes += found.size
            self._worked_at = asyncio.get_running_loop().time()
            if found.suspect is not None:
                await self._suspect(replica, found.suspect)
            place = found.place
            if replica.config.scrub_bytes_per_second != NO_LIMIT:
                await asyncio.sleep(found.size / replica.config.scrub_bytes_per_second)

    async def _suspect(self, replica: _Replica, offset: int) -> None:
        _log.warning("%s seems to be damaged at offset %d; it is told.", replica.directory, offset)
        self._suspects += 1
        for _ in range(_TELLS):
            try:
                await self._tell(bytes.fromhex(replica.topic_id), replica.partition, offset)
                return
            except RaylogError as error:
                cause = error.error if isinstance(error, RemoteFailed) else error
                _log.info("%s: %s", replica.directory, cause)
                if not isinstance(cause, InspectionUnderWay):
                    return
            await asyncio.sleep(_TELL_AGAIN_SECONDS)

    # --- the disk -------------------------------------------------------------------------------------------------

    def _find(self) -> list[_Replica]:
        names = replica_names(self._env.disk, self._directory)
        found = (self._replica(topic, partition) for topic, partition in names if topic != METADATA_TOPIC)
        replicas = [each for each in found if each is not None]
        known = {each.name for each in replicas}
        for name in [name for name in self._progress if name not in known]:
            del self._progress[name]
        return replicas

    def _replica(self, topic: str, partition: int) -> _Replica | None:
        name = f"{topic}-{partition}"
        directory = f"{self._directory}/{name}"
        try:
            body = read_checkpoint(self._env.disk, f"{directory}/{PARTITION_FILE}", 1)
            return _Replica(name, directory, body["topic_id"], partition, TopicConfig.parse(body["config"]))
        except FileNotFoundError:  # it is being made, or removed
            return None
        except (LogDamaged, UnsupportedFormat, KeyError) as error:
            _log.warning("%s is not scrubbed: %s", directory, error)
            return None

    def _read_progress(self) -> dict[str, Progress]:
        try:
            return read_checkpoint(self._env.disk, f"{self._directory}/{PROGRESS_FILE}", _VERSION, _parse)
        except FileNotFoundError:
            return {}
        except (LogDamaged, UnsupportedFormat, DiskError) as error:
            _log.warning("The scrubbing of %s begins anew: %s", self._directory, error)
            return {}

    def _write_progress(self) -> None:
        body: Body = {name: [each.topic_id, each.begun_ms, each.next_base] for name, each in self._progress.items()}
        write_checkpoint(self._env.disk, f"{self._directory}/{PROGRESS_FILE}", _VERSION, body)
        self._unwritten = False


def _parse(body: dict[str, Any]) -> dict[str, Progress]:
    return {name: Progress(*fields) for name, fields in body.items()}
