"""A replica while it follows: it pulls until it has caught up, and then takes what the leader pushes.

    state        pushes                                  leaves by
    PULLING      of this session wait, others refused    an answer: again, or PUSHED TO where it says `pushing`
    PUSHED TO    taken where they join on                a refused push, PullInstead, silence: PULLING
    DIALLING     none                                    a stream: PULLING

Of what is pushed, the first batches of an epoch wait until its beginning is on disk.

What must stay true:
- Nothing is taken but from the leader of the present epoch (rules 11, 12), and nothing is cut but where the leader's
  history leaves this log's (rules 9, 10).
- What may hold acknowledged records that the leader lacks is set aside before it is cut (rule 7).
- What this replica says it holds is in its log, and counts (`HostedLog.counted_end`).
- One stream to the leader, one pull at a time: what arrives is applied in the order in which the leader sent it. A push
  that overtakes the answer before it in this process waits for that to be applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream, expected
from raylog.actors.protocol.control_messages import NO_UNCLEAN_EPOCH, ReplicaAddress
from raylog.actors.protocol.replication_messages import (
    NO_EPOCH,
    Pull,
    Pulled,
    PullInstead,
    Push,
    Pushed,
    StopFollowing,
    SuspectBatch,
)
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.leader_streams import LeaderStreams
from raylog.actors.replica.rules.replication import (
    Verdict,
    epoch_before,
    judge_push,
    may_be_all_there_is,
    truncation_offset,
)
from raylog.config import NO_LIMIT
from raylog.errors import (
    BatchError,
    DiskFull,
    FrameInvalid,
    OffsetOutOfRange,
    RaylogError,
    RemoteFailed,
    ReplicaNotFree,
    StreamError,
)
from raylog.storage.directory.set_aside_names import cut, unclean
from raylog.storage.format.record_batch import Bytes, first_unsound, next_offset_of

MAX_PULL_BYTES: Final = 1024 * 1024
_PULL_SECONDS: Final = 3.0
_SILENCE_SECONDS: Final = 1.0
_SILENCE_GROWS: Final = 4
_LONGEST_SILENCE_SECONDS: Final = 300.0  # of a partition to which nothing is written
_THROTTLE_STEP_SECONDS: Final = 0.5
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_COPY_TRIES: Final = 5
_SEGMENTS_CHANGE: Final = "its segments are being replaced, so it cannot be set aside"
_log = logging.getLogger(__name__)


class FollowerRole:
    """`streams` are shared with other replicas of the host. What leaders push over them comes back as `push`."""

    def __init__(
        self,
        hosted: HostedLog,
        leader_epoch: int,
        leader: ReplicaAddress,
        streams: LeaderStreams,
        catch_up_rate: int,
        unclean_epoch: int = NO_UNCLEAN_EPOCH,
    ) -> None:
        self.epoch = leader_epoch
        self._unclean_epoch = unclean_epoch
        self.catch_up_rate = catch_up_rate  # bytes a second; NO_LIMIT also while the controller has it as in sync
        self._hosted = hosted
        self._log = hosted.log
        self._marks = hosted.log.marks
        self.leader = leader
        self._streams = streams
        self._loop = asyncio.get_running_loop()
        self._is_pulling = True
        self._early: list[tuple[Request, Push, asyncio.Future[Answer]]] = []
        self._pull_again: asyncio.Future[None] = self._loop.create_future()
        self._heard = False
        self._heard_again: asyncio.Future[None] = self._loop.create_future()  # after a silence
        self._quiet_seconds = _SILENCE_SECONDS
        self._stream: Stream | None = None
        self._ended = False
        self._start = hosted.log.log_start_offset  # where the leader's log begins
        self._moving_start: asyncio.Task[None] | None = None
        self._beginning: asyncio.Task[None] | None = None  # writes down the epoch of what is pushed (rule 8)
        # An epoch in which this replica led and wrote nothing is not part of its leader's history.
        self._log.truncate_to(self._log.log_end_offset, hosted.env.wall_ms())
        self._task = hosted.start(self._follow())

    # --- pulling ---

    async def _follow(self) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._hosted.env.random)
        while not self._hosted.failed.done():
            try:
                stream = self._stream = await self._streams.open(self.leader)
                await self._pull_over(stream)
                backoff.reset()
            except RaylogError as error:  # the leader's, the stream's, or the log's: none is for ever but the last
                self._hosted.check_offline()
                _log.info("%s: broker %d follows again soon: %s", self._hosted.name, self._hosted.me[0], error)
            self._refuse_early()
            await self._close_stream()
            await asyncio.sleep(backoff.next())

    async def _pull_over(self, stream: Stream) -> None:
        while not stream.closed.done():
            # From here on pushes of the session before are refused: what the pull says it holds has been counted.
            self._hosted.pull_session += 1
            self._is_pulling = True
            self._pull_again = self._loop.create_future()
            await self._counted()
            if self._hosted.failed.done():
                return
            response = await self._pull(stream)
            pushing = response is not None and await self._take(response)
            if response is not None and not pushing:
                await self._throttle(len(response.payload))
            if pushing:
                self._is_pulling = False
                if self._beginning is None:
                    self._take_early()
                await self._until_it_has_to_pull(stream)

    async def _throttle(self, size: int) -> None:
        """Wait, so that a replica out of sync catches up no faster than is allowed and leaves room for those in sync.

        It waits in short steps: what is allowed changes as others begin and finish.
        """
        while size > 0 and (rate := self.catch_up_rate) != NO_LIMIT:
            seconds = min(size / rate, _THROTTLE_STEP_SECONDS)
            await asyncio.sleep(seconds)
            size -= max(1, round(rate * seconds))

    async def _pull(self, stream: Stream) -> Response | None:
        """Pull once. None: the leader's log begins later than this one ends, and this one goes on from there."""
        log, name, (broker_id, incarnation) = self._log, self._hosted.name, self._hosted.me
        last_epoch = epoch_before(log.epochs, log.log_end_offset, log.log_start_offset)
        pull = Pull(
            self.epoch, self._hosted.pull_session, broker_id, incarnation,
            log.log_end_offset, last_epoch, log.log_start_offset, MAX_PULL_BYTES,
        )  # fmt: skip
        try:
            return await stream.request(
                pull, topic_id=name.topic_id, partition=name.partition, timeout=_PULL_SECONDS
            )
        except RemoteFailed as error:
            if not isinstance(error.error, OffsetOutOfRange):
                raise
            start = error.error.start
            if log.log_start_offset < log.log_end_offset and start <= log.log_end_offset:
                raise  # the leader's log does not leave this one behind: it has just changed, and is asked again
            _log.warning(
                "%s: broker %d has [%d, %d), the leader begins at %d; it starts over from there.",
                name, broker_id, log.log_start_offset, log.log_end_offset, start,
            )  # fmt: skip
            await self._keep_what_is_cut(start, explained=True)
            await self._hosted.restart_at(start)
            return None

    async def _take(self, response: Response) -> bool:
        """Apply the answer to a pull. Whether the leader pushes from here on."""
        answer, log = expected(response.message, Pulled, f"broker {self.leader.broker_id}"), self._log
        if answer.leader_epoch != self.epoch:
            raise FrameInvalid(f"A pull in epoch {self.epoch} was answered with {answer}.")
        if answer.diverged is not None:
            await self._truncate(truncation_offset(log.epochs, log.log_end_offset, answer.diverged))
            return False
        if response.payload:
            await self._write_epoch(response.payload)
            try:
                self._append(response.payload)
            except BatchError:
                await self._tell_suspicion(response.payload)
                raise
        self._take_marks(answer.high_watermark, answer.log_start_offset)
        return answer.pushing

    def _append(self, batches: Bytes) -> None:
        now_ms = self._hosted.env.wall_ms()
        try:
            self._log.append_as_follower(batches, now_ms)
        except DiskFull:
            self._hosted.room.refused()
            self._hosted.changed()
            raise
        if self._hosted.room.was_refused:
            self._hosted.room.took()
        self._hosted.appended(now_ms)

    async def _tell_suspicion(self, batches: Bytes) -> None:
        """Tell the leader of a damaged batch. It looks into its own copy, and stands down if needed (rule 1)."""
        stream, name = self._stream, self._hosted.name
        offset = first_unsound(batches, self._log.log_end_offset)
        _log.warning("%s: broker %d gets a damaged batch at %d.", name, self._hosted.me[0], offset)
        if stream is not None:
            suspicion = SuspectBatch(self.epoch, offset)
            await stream.request(
                suspicion, topic_id=name.topic_id, partition=name.partition, timeout=_PULL_SECONDS
            )

    async def _truncate(self, offset: int) -> None:
        """Cut the log. While that waits for the disk nothing is appended, for only the caller appends."""
        log = self._log
        before, high_watermark = log.log_end_offset, log.high_watermark
        await self._keep_what_is_cut(offset)
        end = await self._hosted.truncate(offset)
        if end < high_watermark:
            _log.error(
                "%s: broker %d cut its log from %d to %d, below its high watermark %d: records that were acknowledged "
                "are gone, as after an unclean election.",
                self._hosted.name, self._hosted.me[0], before, end, high_watermark,
            )  # fmt: skip
        elif end < before:
            _log.info("%s: broker %d cut its log from %d to %d.", self._hosted.name, self._hosted.me[0], before, end)

    async def _keep_what_is_cut(self, offset: int, *, explained: bool = False) -> None:
        """Set the log aside as it is, where that may be all there is of acknowledged records.

        `explained`: the leader has deleted whatever this log has, so the high watermark tells nothing.
        """
        log = self._log
        last_epoch = epoch_before(log.epochs, log.log_end_offset, log.log_start_offset)
        high_watermark = offset if explained else log.high_watermark
        is_empty = last_epoch == NO_EPOCH
        if is_empty or not may_be_all_there_is(last_epoch, self._unclean_epoch, offset, high_watermark):
            return
        is_old = last_epoch < self._unclean_epoch
        why = unclean(self._unclean_epoch) if is_old else cut(self.epoch)
        path = await self._copied(why)
        _log.error(
            "%s: broker %d has [%d, %d), of which what is from %d on has to go: the leader of epoch %d lacks it. "
            "All of it was set aside as %s; `raylog topic recover` shows and restores it.",
            self._hosted.name, self._hosted.me[0], log.log_start_offset, log.log_end_offset, offset, self.epoch, path,
        )  # fmt: skip

    async def _copied(self, why: str) -> str:
        name, tries = self._hosted.name, _COPY_TRIES
        while True:
            copy = self._log.plan_copy(why, self._hosted.env.wall_ms())
            try:
                return await self._hosted.carry_out(copy)
            except FileNotFoundError:  # compaction or retention has replaced a segment
                tries -= 1
                if not tries:
                    raise ReplicaNotFree(name.topic, name.partition, _SEGMENTS_CHANGE) from None

    def _take_marks(self, high_watermark: int, log_start_offset: int) -> None:
        marks = self._marks
        if high_watermark > marks.high_watermark or log_start_offset > marks.log_start_offset:
            self._hosted.changed()
            self._log.advance_high_watermark(high_watermark)
        if log_start_offset > self._start:  # noqa: PLR1730 (each batch comes here: no call)
            self._start = log_start_offset
        if self._start > marks.log_start_offset and self._moving_start is None and self._lacks_start:
            self._moving_start = self._hosted.start(self._move_start())

    @property
    def _lacks_start(self) -> bool:
        return min(self._start, self._log.high_watermark) > self._log.log_start_offset

    async def _move_start(self) -> None:
        """Let the log begin where the leader's does. Only this waits for the disk: pushes are taken meanwhile."""
        try:
            while self._lacks_start:
                await self._hosted.begin_at(min(self._start, self._log.high_watermark))
        except RaylogError as error:  # what comes next from the leader begins it anew
            _log.warning("%s: broker %d keeps its log start: %s", self._hosted.name, self._hosted.me[0], error)
            self._hosted.check_offline()
        finally:
            self._moving_start = None

    async def _counted(self) -> None:
        counted = self._hosted.counted(self._log.log_end_offset)
        if counted is not None:
            await asyncio.wait([counted])

    async def _until_it_has_to_pull(self, stream: Stream) -> None:
        """Wait for a reason, or for silence: a pull tells whether the leader still pushes to this replica.

        Whether it lives at all, the stream finds out. So a partition to which nothing is written asks ever more rarely.
        """
        self._heard = True
        while self._heard and not (self._pull_again.done() or stream.closed.done()):
            self._heard = False
            self._heard_again = self._loop.create_future()
            either = [self._pull_again, stream.closed, self._heard_again]
            await asyncio.wait(either, timeout=self._quiet_seconds, return_when=asyncio.FIRST_COMPLETED)
            longer = min(_SILENCE_GROWS * self._quiet_seconds, _LONGEST_SILENCE_SECONDS)
            self._quiet_seconds = _SILENCE_SECONDS if self._heard else longer

    # --- being pushed to ---

    def push(self, request: Request, message: Push) -> Answer | Awaitable[Answer]:
        if self._ended or message.session != self._hosted.pull_session or request.stream is not self._stream:
            return Response(self._pushed(accepted=False))
        self._heard = True
        if self._quiet_seconds > _SILENCE_SECONDS and not self._heard_again.done():
            self._heard_again.set_result(None)
        epochs = self._log.epochs
        if (epochs.latest != self.epoch or epochs.is_stale) and request.payload and self._beginning is None:
            self._beginning = self._hosted.start(self._begin_epoch(request.payload))
        if self._is_pulling or self._beginning is not None:
            future: asyncio.Future[Answer] = self._loop.create_future()
            self._early.append((request, message, future))
            return future
        return self._take_push(request, message)

    async def _begin_epoch(self, batches: Bytes) -> None:
        """Let the first pushes of an epoch wait until its beginning is on disk: other replicas of the host go on."""
        try:
            await self._write_epoch(batches)
        finally:
            self._beginning = None
        if not self._is_pulling:
            self._take_early()

    async def _write_epoch(self, batches: Bytes) -> None:
        """Write down that an epoch begins with these batches. If that fails, their append tries again and says so."""
        try:
            await self._hosted.carry_out(self._log.plan_followed_epoch(batches))
        except RaylogError as error:
            _log.debug("%s: its epoch is written with its first batch: %s", self._hosted.name, error)

    def pull_instead(self, message: PullInstead) -> None:
        """Pull again, as the leader asks, even if this overtook the answer to the pull that it belongs to."""
        if message.session == self._hosted.pull_session:
            self._pull_soon()

    def _take_push(self, request: Request, message: Push) -> Answer | Awaitable[Answer]:
        log, payload = self._log, request.payload
        end = log.log_end_offset
        joins_on = message.base_offset == end or not payload
        next_offset = message.base_offset if joins_on else next_offset_of(payload)
        verdict = judge_push(
            log.epochs, self._marks.log_start_offset, end,
            message.base_offset, message.previous_epoch, next_offset, self.epoch,
        )  # fmt: skip
        if verdict is Verdict.REFUSE:
            return self._refuse()
        if verdict is Verdict.APPEND and payload:
            try:
                self._append(payload)
            except RaylogError as error:
                _log.warning("%s: broker %d cannot take a push: %s", self._hosted.name, self._hosted.me[0], error)
                self._hosted.check_offline()
                return self._refuse()
        self._take_marks(message.high_watermark, message.log_start_offset)
        counted = self._hosted.counted(log.log_end_offset)
        moving = None if payload else self._moving_start  # a push without batches asks for the marks
        if counted is not None or moving is not None:
            return self._answer_once([each for each in (counted, moving) if each is not None])
        return Response(self._pushed(accepted=True))

    async def _answer_once(self, waits: list[asyncio.Future[None]]) -> Answer:
        await asyncio.wait(waits)
        return Response(self._pushed(accepted=True))

    def _pushed(self, *, accepted: bool) -> Pushed:
        return Pushed(self._hosted.counted_end, self._marks.log_start_offset, accepted)

    def _refuse(self) -> Response:
        self._pull_soon()
        return Response(self._pushed(accepted=False))

    def _pull_soon(self) -> None:
        if not self._pull_again.done():
            self._pull_again.set_result(None)

    def _take_early(self) -> None:
        early, self._early = self._early, []
        for request, message, future in early:
            if future.done():
                continue
            is_of_session = message.session == self._hosted.pull_session
            answer = self._take_push(request, message) if is_of_session else Response(self._pushed(accepted=False))
            if answer is None or isinstance(answer, Response):
                future.set_result(answer)
            else:
                _pass_on(asyncio.ensure_future(answer), future)

    def _refuse_early(self) -> None:
        early, self._early = self._early, []
        for _, _, future in early:
            if not future.done():
                future.set_result(Response(self._pushed(accepted=False)))

    # --- ending ---

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is None:
            return
        name, (broker_id, incarnation) = self._hosted.name, self._hosted.me
        try:
            leave = StopFollowing(self.epoch, broker_id, incarnation)
            stream.send(leave, topic_id=name.topic_id, partition=name.partition)
        except StreamError as error:  # it has ended, or is about to: the leader takes note of that
            _log.debug("%s: broker %d could not say that it leaves: %s", name, broker_id, error)
        await self._streams.release(self.leader, stream)

    def end(self) -> None:
        """Take nothing more."""
        self._ended = True
        self._task.cancel()
        for task in self._moving_start, self._beginning:
            if task is not None:
                task.cancel()
        self._refuse_early()
        self._hosted.start_last(self._close_stream())


def _pass_on(answer: asyncio.Future[Answer], waiting: asyncio.Future[Answer]) -> None:
    def done(_: asyncio.Future[Answer]) -> None:
        if not waiting.done() and not answer.cancelled():
            waiting.set_result(answer.result())

    answer.add_done_callback(done)
