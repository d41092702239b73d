"""Promises: a controller that begins gets its epoch from them, and then the newest log (rule 17).

Each round asks under an epoch that is higher than all that were heard of. So no answer to an earlier round can be taken
for one to this. Rounds end with the time-out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response, Stream, expected
from raylog.actors.metadata_log.copy import SNAPSHOT
from raylog.actors.metadata_log.directory_marks import marks_in, outdated_voters
from raylog.actors.metadata_log.rules.quorum import (
    PromisedLog,
    choose_in_doubt,
    choose_log,
    may_form,
    next_controller_epoch,
)
from raylog.actors.metadata_log.rules.tail import LogTail, MetadataSnapshot, decode_batches
from raylog.actors.protocol.control_messages import MetadataRead, Promise, Promised, ReadMetadata
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.config import MIB
from raylog.errors import MetadataNotBlank, MetadataQuorumUnavailable, OffsetOutOfRange, RaylogError
from raylog.storage.format.record_batch import Bytes

_log = logging.getLogger(__name__)

Reachable: TypeAlias = Callable[[], Iterable[tuple[int, Stream]]]

_ROUND_SECONDS: Final = 2.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_READ_BYTES: Final = 8 * MIB
_READ_SECONDS: Final = 10.0
_T = TypeVar("_T")


class Adopted(NamedTuple):
    """An epoch that a majority has promised, the log to go on from, and the voters, which a blank log does not name."""

    epoch: int
    tail: LogTail
    voters: tuple[Voter, ...]


class PromiseRounds:
    """One controller's attempts, for `timeout` seconds."""

    def __init__(self, env: Environment, controller: str, reachable: Reachable, timeout: float) -> None:
        self._env = env
        self._controller = controller
        self._reachable = reachable
        self._timeout = timeout
        self._deadline = asyncio.get_running_loop().time() + timeout
        self._epochs_seen: set[int] = set()
        self._voters_seen: tuple[int, ...] = ()
        self._answered: set[int] = set()
        self._must_be_blank = False
        self._promised: list[PromisedLog] = []  # in the last round
        self._outdated: set[Voter] = set()

    # --- the two ways to begin ------------------------------------------------------------------------------------

    async def adopt(self) -> Adopted:
        """Take over the newest log that a majority of its voters stands behind."""
        return await self._until_done(self._try_to_adopt)

    async def claim(self, voters: Sequence[int]) -> Adopted:
        """A blank log, promised by all of these brokers, which are to be blank too: else MetadataNotBlank."""
        self._voters_seen = tuple(voters)
        self._must_be_blank = True
        return await self._until_done(lambda streams: self._try_to_claim(streams, voters))

    async def _try_to_adopt(self, streams: dict[int, Stream]) -> Adopted | None:
        epoch, log = await self._ask_all(streams, lambda promised: choose_log(self._counting(promised)))
        is_in_doubt = log is None
        log = log or choose_in_doubt(self._counting(self._promised))
        if log is None:
            return None
        try:
            tail = await self._read_log(streams[log.broker_id], epoch, log)
            if self._found_outdated(tail):
                return None
            if is_in_doubt:
                _say_doubt(log)
            return Adopted(epoch, tail, tail.voters)
        except RaylogError as error:
            _log.warning("The metadata log of broker %d could not be read, trying again: %s", log.broker_id, error)
            return None

    def _counting(self, promised: Collection[PromisedLog]) -> list[PromisedLog]:
        return [log for log in promised if log.voter not in self._outdated]

    def _found_outdated(self, tail: LogTail) -> bool:
        """Whether anybody who promised has a directory from before what this log says of it. It counts no more."""
        found = outdated_voters(self._promised, marks_in(tail)) - self._outdated
        for broker_id, _ in sorted(found):
            _log.error(
                "The directory of broker %d is an older copy of what it was: it has forgotten what it promised, so it "
                "counts for nothing. Put back the newer one, or empty it and let raylog fetch everything anew.",
                broker_id,
            )
        self._outdated |= found
        return bool(found)

    async def _try_to_claim(self, streams: dict[int, Stream], voters: Sequence[int]) -> Adopted | None:
        def named(promised: Collection[PromisedLog]) -> tuple[Voter, ...] | None:
            if not may_form(promised, voters):
                return None
            return tuple(sorted(log.voter for log in promised if log.broker_id in voters))

        epoch, first_voters = await self._ask_all(streams, named)
        return None if first_voters is None else Adopted(epoch, LogTail(), first_voters)

    # --- rounds ---------------------------------------------------------------------------------------------------

    async def _until_done(self, attempt: Callable[[dict[int, Stream]], Awaitable[Adopted | None]]) -> Adopted:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, self._env.random)
        while True:
            done = await attempt(dict(self._reachable()))
            if done is not None:
                return done
            if self._seconds_left() <= 0:
                raise MetadataQuorumUnavailable(
                    brokers_text(self._voters_seen), brokers_text(self._answered), int(self._timeout * 1000)
                )
            # Two controllers that began together must not go on so.
            await _pause(backoff.next())

    async def _ask_all(
        self, streams: dict[int, Stream], decide: Callable[[Collection[PromisedLog]], _T | None]
    ) -> tuple[int, _T | None]:
        """Ask for promises under a new epoch until `decide` has seen enough, or nobody is left to answer."""
        epoch = next_controller_epoch(self._epochs_seen)
        self._epochs_seen.add(epoch)
        seconds = min(_ROUND_SECONDS, self._seconds_left())
        asked = {
            stream.request(Promise(epoch, self._controller), timeout=seconds): broker_id
            for broker_id, stream in streams.items()
            if seconds > 0
        }
        promised: list[PromisedLog] = []
        waiting: set[asyncio.Future[Response]] = set(asked)
        decided: _T | None = None
        while waiting and decided is None:
            answered, waiting = await asyncio.wait(waiting, timeout=seconds, return_when="FIRST_COMPLETED")
            if not answered:
                break
            promised += [log for each in answered if (log := self._promised_log(asked[each], each)) is not None]
            decided = decide(promised)
        for late in waiting:
            late.cancel()
        self._promised = promised
        return epoch, decided

    def _promised_log(self, broker_id: int, asked: asyncio.Future[Response]) -> PromisedLog | None:
        """The log that this broker has promised with; None where it did not promise."""
        error = asked.exception()
        if error is not None:
            if not isinstance(error, RaylogError):
                raise error
            _log.info("Broker %d has not answered for the metadata log: %s", broker_id, error)
            return None
        answer = asked.result().message
        if type(answer) is not Promised:
            return None
        self._answered.add(broker_id)
        self._epochs_seen.add(answer.promised_epoch)
        self._voters_seen = self._voters_seen or tuple(voter for voter, _ in answer.voters)
        place = answer.last_epoch, answer.start_offset, answer.end_offset
        word = answer.voters, answer.mark, answer.is_unproven
        log = PromisedLog(broker_id, answer.directory_id, *place, *word)
        if self._must_be_blank and not log.is_blank:
            raise MetadataNotBlank(broker_id, log.end_offset)
        return log if answer.granted else None

    # --- the chosen log -------------------------------------------------------------------------------------------

    async def _read_log(self, stream: Stream, epoch: int, log: PromisedLog) -> LogTail:
        """Read all that the broker has. Its log stands still, since it has promised to obey nobody else."""
        tail = LogTail()
        if log.start_offset:
            read, payload = await self._read(stream, ReadMetadata(epoch, SNAPSHOT, _READ_BYTES))
            tail = LogTail(MetadataSnapshot.decode(read.offset, read.epoch, payload))
        while tail.end_offset < log.end_offset:
            _, payload = await self._read(stream, ReadMetadata(epoch, tail.end_offset, _READ_BYTES))
            if not payload:
                raise OffsetOutOfRange(tail.end_offset, log.start_offset, log.end_offset)
            tail.append(decode_batches(payload))
        return tail

    async def _read(self, stream: Stream, message: ReadMetadata) -> tuple[MetadataRead, Bytes]:
        response = await stream.request(message, timeout=_READ_SECONDS)
        return expected(response.message, MetadataRead, stream.peer), response.payload

    def _seconds_left(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()


def _say_doubt(log: PromisedLog) -> None:
    _log.error(
        "The metadata log of broker %d is taken up to offset %d, though its end may be missing: too many voters have "
        "lost their power and found the end of their logs damaged. Compare `raylog topic list` with what there should "
        "be.",
        log.broker_id, log.end_offset,
    )  # fmt: skip


async def _pause(seconds: float) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await asyncio.wait({over}, timeout=seconds)


def brokers_text(brokers: Iterable[int]) -> str:
    """List brokers for people, by their ids."""
    return ", ".join(map(str, sorted(brokers)))


def voters_text(voters: Iterable[Voter]) -> str:
    """List voters for people, by their brokers' ids."""
    return brokers_text(broker_id for broker_id, _ in voters)
