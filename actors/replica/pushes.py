"""A leader's side of its followers: answering their pulls, and pushing to those that have caught up.

What must stay true:
- The answer that reaches the log end and the pushes after it go over the same stream, in order, with nothing missing
  in between. Batches that are appended in one turn of the event loop go out together.
- What is pushed to one follower and not answered has a bound; past it the follower is told to pull (rule 31).
- What a follower is said to hold, and where its log is said to begin, is what it has answered, or what it asks to go
  on from. A late answer never lowers a follower's known end; otherwise the leader would wait for a follower that has
  already answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, cast

from raylog.actors.kernel.stream_interface import Request, Response, Stream
from raylog.actors.protocol.control_messages import NO_LEADER, ReplicaId
from raylog.actors.protocol.replication_messages import Pull, Pulled, PullInstead, Push, Pushed, StopFollowing
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.rules.replication import NOTHING_TOLD, FollowerCursor, check_epoch, divergence, epoch_before
from raylog.errors import (
    AnswerUnexpected,
    NotLeader,
    OffsetOutOfRange,
    RaylogError,
    RemoteFailed,
    StaleIncarnation,
    StaleLeaderEpoch,
    StreamError,
)
from raylog.storage.format.record_batch import Bytes
from raylog.storage.log.reader import Isolation

_PUSH_SECONDS: Final = 10.0
_MAX_JOINED_BYTES: Final = 256 * 1024  # small batches are joined up to here; larger ones go as they are
_MARKS_AFTER_MS: Final = 20  # in a transaction some milliseconds lie between the appends
_log = logging.getLogger(__name__)


class _Run(NamedTuple):
    """Neighbouring batches."""

    base_offset: int
    next_offset: int
    data: Bytes


class _Following:
    """A cursor, the stream that it belongs to, and what is called when that ends."""

    __slots__ = ("cursor", "stream", "stream_ended")

    def __init__(self, cursor: FollowerCursor, stream: Stream, stream_ended: Callable[[object], None]) -> None:
        self.cursor = cursor
        self.stream = stream
        self.stream_ended = stream_ended

    def forget_stream(self) -> None:
        """Let go of the stream, which goes on for others."""
        self.stream.closed.remove_done_callback(self.stream_ended)


class FollowerPushes:
    """Pushes to the followers of one leader.

    `holds(follower, log end, log start)` hears what each follower has, `left(follower)` that its stream has ended, and
    `deposed(epoch)` that there is a newer leader.
    """

    def __init__(
        self,
        hosted: HostedLog,
        epoch: int,
        holds: Callable[[ReplicaId, int, int], None],
        left: Callable[[ReplicaId], None],
        deposed: Callable[[int], None],
    ) -> None:
        self._hosted = hosted
        self._log = hosted.log
        self._log_marks = hosted.log.marks
        self._epoch = epoch
        self._holds = holds
        self._left = left
        self._deposed = deposed
        self._loop = asyncio.get_running_loop()
        self._following: dict[int, _Following] = {}
        self._unpushed: list[_Run] = []
        self._marks_due = False
        self._ended = False
        self._moving_start: asyncio.Task[None] | None = None
        hosted.when_start_moves = self.marks_moved

    # --- pulls ---

    def pull(
        self, request: Request, message: Pull, current_incarnation: int | None
    ) -> Response | Awaitable[Response]:
        """Answer a follower's pull. `current_incarnation`: what the controller says of it; None: it is no replica."""
        check_epoch(message.leader_epoch, self._epoch)
        if current_incarnation is None or message.incarnation < current_incarnation:
            name, current = self._hosted.name, -1 if current_incarnation is None else current_incarnation
            raise StaleIncarnation(name.topic, name.partition, message.broker_id, message.incarnation, current)
        self._push_out()
        end = self._log.log_end_offset
        diverged = divergence(self._log.epochs, end, message.offset, message.last_epoch)
        if diverged is not None:
            return Response(self._pulled(diverged=diverged))
        if not self._log.log_start_offset <= message.offset <= end:
            raise OffsetOutOfRange(message.offset, self._log.log_start_offset, end)
        self._take_log_start(message.log_start_offset)
        following = self._follow(request.stream, message)
        self._holds(following.cursor.follower, message.offset, message.log_start_offset)
        if self._hosted.is_cold(message.offset):
            return self._pull_cold(message)
        read = self._hosted.read(message.offset, message.max_bytes, Isolation.LOG_END)
        if read.next_offset >= end:
            following.cursor.next_offset = end
            following.cursor.is_pushing = True
            begins_early = message.log_start_offset < self._log.log_start_offset
            if read.data or begins_early:  # nothing more may come for a while: an empty push asks how far it is now
                self._loop.call_soon(self._tell_marks_to, following)
        return Response(self._pulled(pushing=following.cursor.is_pushing), read.data)

    def _take_log_start(self, offset: int) -> None:
        """Delete what an earlier leader has deleted, of which only the follower may know.

        A follower whose log begins where this one has nothing yet is from another history, and tells nothing.
        """
        if self._moving_start is None and self._log.log_start_offset < offset <= self._log.high_watermark:
            self._moving_start = self._hosted.start(self._move_start(offset))

    async def _move_start(self, offset: int) -> None:
        try:
            await self._hosted.begin_at(offset)
            self.marks_moved()
        except RaylogError as error:  # it is asked for again with the next pull
            _log.warning("%s: its log start offset stays behind: %s", self._hosted.name, error)
            self._hosted.check_offline()
        finally:
            self._moving_start = None

    async def _pull_cold(self, message: Pull) -> Response:
        """Answer a pull from a sealed segment. It does not reach the log end, so the follower will pull again."""
        read = await self._hosted.read_cold(
            message.offset, message.max_bytes, Isolation.LOG_END, self._check_leading
        )
        return Response(self._pulled(), read.data)

    def _check_leading(self) -> None:
        """Raise NotLeader after the end of this leadership. To be called after each await (rule 28)."""
        if self._ended:
            name = self._hosted.name
            raise NotLeader(name.topic, name.partition, NO_LEADER, self._epoch)

    def _follow(self, stream: Stream, message: Pull) -> _Following:
        follower = (message.broker_id, message.incarnation)
        before = self._following.get(message.broker_id)
        cursor = FollowerCursor(follower, message.session, message.offset)
        if before is not None and before.stream is stream:
            following = _Following(cursor, stream, before.stream_ended)
        else:
            if before is not None:
                before.forget_stream()
            following = _Following(cursor, stream, partial(self._stream_ended, message.broker_id, stream))
            stream.closed.add_done_callback(following.stream_ended)
        self._following[message.broker_id] = following
        return following

    def _stream_ended(self, broker_id: int, stream: Stream, _: object) -> None:
        following = self._following.get(broker_id)
        if following is not None and following.stream is stream:
            self._has_left(following)

    def stop(self, stream: Stream, message: StopFollowing) -> None:
        """A follower leaves, and its stream goes on. Of an earlier epoch, stream or incarnation it means nothing."""
        following = self._following.get(message.broker_id)
        if following is None or following.stream is not stream or message.leader_epoch != self._epoch:
            return
        if following.cursor.follower == (message.broker_id, message.incarnation):
            following.forget_stream()
            self._has_left(following)

    def _has_left(self, following: _Following) -> None:
        del self._following[following.cursor.follower[0]]
        self._left(following.cursor.follower)

    def _pulled(self, *, diverged: tuple[int, int] | None = None, pushing: bool = False) -> Pulled:
        return Pulled(self._epoch, self._log.high_watermark, self._log.log_start_offset, diverged, pushing)

    # --- pushes ---

    def appended(self, batch: Bytes, base_offset: int, next_offset: int) -> None:
        """Push this batch at the end of this turn of the event loop."""
        if self._following:
            if not self._unpushed:
                self._loop.call_soon(self._push_out)
            self._unpushed.append(_Run(base_offset, next_offset, batch))

    def _push_out(self) -> None:
        unpushed, self._unpushed = self._unpushed, []
        if self._ended:
            return
        for run in _joined(unpushed):
            previous = epoch_before(self._log.epochs, run.base_offset, self._log_marks.log_start_offset)
            for following in list(self._following.values()):
                if following.cursor.is_pushing:
                    self._push(following, run, previous)

    def _push(self, following: _Following, run: _Run, previous_epoch: int) -> None:
        cursor, size = following.cursor, len(run.data)
        if not cursor.push(size, run.next_offset):
            self._let_it_pull(following)
            return
        marks = self._marks(cursor, run.base_offset, previous_epoch)
        name = self._hosted.name
        following.stream.request_then(
            partial(self._answered, following, size), marks, run.data,
            topic_id=name.topic_id, partition=name.partition, timeout=_PUSH_SECONDS,
        )  # fmt: skip

    def _marks(self, cursor: FollowerCursor, base_offset: int, previous_epoch: int) -> Push:
        marks = self._log_marks
        cursor.told_marks = high_watermark, log_start_offset = marks.high_watermark, marks.log_start_offset
        return Push(
            self._epoch, cursor.session, base_offset, previous_epoch,
            high_watermark, log_start_offset,
        )  # fmt: skip

    def _answered(self, following: _Following, size: int, reply: Response | Exception) -> None:
        """Called as the answer arrives, so that an append which waits for it goes out in the same turn of the loop.

        A follower answers a push with batches before its log begins where the push said: it is told once more.
        """
        cursor = following.cursor
        cursor.answered(size)
        if self._ended:
            return
        if type(reply) is not Response:
            self._failed(following, cast(Exception, reply))
            return
        answer = reply.message
        if type(answer) is not Pushed:
            broker = f"broker {cursor.follower[0]}"
            self._failed(following, AnswerUnexpected(broker, Pushed.__name__, type(answer).__name__))
        elif answer.accepted:
            self._holds(cursor.follower, cursor.holds(answer.log_end_offset), answer.log_start_offset)
            if size and answer.log_start_offset < self._log_marks.log_start_offset:
                cursor.told_marks = NOTHING_TOLD
                self.marks_moved()
        else:
            cursor.is_pushing = False  # it did not join on there; the follower pulls by itself

    def _failed(self, following: _Following, error: Exception) -> None:
        """Have the follower pull. For a cursor that a later pull has replaced there is nothing to do."""
        cause = error.error if isinstance(error, RemoteFailed) else error
        if isinstance(cause, StaleLeaderEpoch) and cause.current > self._epoch:
            self._deposed(cause.current)
        elif following.cursor.is_pushing and self._is_present(following):
            if not isinstance(cause, StreamError):
                broker_id = following.cursor.follower[0]
                _log.warning("%s: broker %d refused a push: %s", self._hosted.name, broker_id, error)
            self._let_it_pull(following)

    def _is_present(self, following: _Following) -> bool:
        return self._following.get(following.cursor.follower[0]) is following

    def _let_it_pull(self, following: _Following) -> None:
        """Push nothing more until it has pulled. Where it does not hear this, its silence makes it pull."""
        following.cursor.is_pushing = False
        name = self._hosted.name
        try:
            instead = PullInstead(self._epoch, following.cursor.session)
            following.stream.send(instead, topic_id=name.topic_id, partition=name.partition)
        except StreamError:
            self._forget_later(following)

    def _forget_later(self, following: _Following) -> None:
        """End the stream of a follower that reads and hears nothing, so that it finds out and comes back."""
        self._hosted.start(following.stream.close(0))

    # --- marks ---

    def marks_moved(self) -> None:
        """Tell followers high watermark and log start once traffic stops for a moment; while it lasts, pushes do."""
        if not self._marks_due and self._following:
            self._tell_marks_later()

    def _tell_marks_later(self) -> None:
        self._marks_due = True
        self._hosted.timers.after(_MARKS_AFTER_MS, partial(self._tell_marks, self._log.log_end_offset))

    def _tell_marks(self, end_then: int) -> None:
        self._marks_due = False
        if self._log.log_end_offset != end_then and not self._ended:
            self._tell_marks_later()
            return
        for following in list(self._following.values()):
            if following.cursor.told_marks != (self._log.high_watermark, self._log.log_start_offset):
                self._tell_marks_to(following)

    async def tell_log_start(self, whom: set[ReplicaId], seconds: float) -> None:
        """Tell followers the log start, until they have answered or the time is over. `holds` hears who took it."""
        told = [each for each in list(self._following.values()) if each.cursor.follower in whom]
        asked = [answer for each in told if (answer := self._tell_marks_to(each)) is not None]
        if asked:
            await asyncio.wait(asked, timeout=seconds)

    def _tell_marks_to(self, following: _Following) -> asyncio.Future[None] | None:
        """Push without batches, behind all that was pushed before. The future is done once it is answered."""
        cursor = following.cursor
        if self._ended or not cursor.is_pushing or not self._is_present(following):
            return None
        self._push_out()
        previous = epoch_before(self._log.epochs, cursor.next_offset, self._log.log_start_offset)
        name = self._hosted.name
        marks = self._marks(cursor, cursor.next_offset, previous)
        over: asyncio.Future[None] = self._loop.create_future()

        def answered(reply: Response | Exception) -> None:
            self._answered(following, 0, reply)
            if not over.done():
                over.set_result(None)

        following.stream.request_then(
            answered, marks, topic_id=name.topic_id, partition=name.partition, timeout=_PUSH_SECONDS
        )
        return over

    def end(self) -> None:
        """End with the leadership: nothing more goes out, and answers that come count for nothing."""
        self._ended = True
        if self._moving_start is not None:
            self._moving_start.cancel()
        for following in self._following.values():
            following.forget_stream()
        self._following.clear()
        self._unpushed.clear()


def _joined(runs: list[_Run]) -> list[_Run]:
    """The same batches with small neighbours put together: a frame a batch would cost more than the copy."""
    if len(runs) == 1:
        return runs
    joined: list[_Run] = []
    group: list[_Run] = []
    size = 0
    for run in runs:
        if group and size + len(run.data) > _MAX_JOINED_BYTES:
            joined.append(_join(group))
            group, size = [], 0
        group.append(run)
        size += len(run.data)
    if group:
        joined.append(_join(group))
    return joined


def _join(group: list[_Run]) -> _Run:
    if len(group) == 1:
        return group[0]
    return _Run(group[0].base_offset, group[-1].next_offset, b"".join(run.data for run in group))
