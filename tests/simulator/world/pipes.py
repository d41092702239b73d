"""Links between machines, and pipes on them: each pipe is one direction of a stream, and behaves as TCP does.

What must stay true:
- A pipe keeps order and repeats nothing. Different pipes overtake each other.
- What is sent into a blocked link, or to a machine without power, waits in its pipe. It goes on when the link is open
  again, and is lost when the sender's machine loses its power meanwhile.
- What arrives at a side that is over is answered with a reset, since the machine lives that it is on.
- A sender is told when too much of what it has sent has not been read.
"""

from __future__ import annotations

import zlib
from collections import deque
from typing import Final, Protocol

from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC, Message
from raylog.config import KIB, MIB
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.delays import Delays
from tests.simulator.world.scheduler import Scheduler
from tests.simulator.world.virtual_loop import VirtualLoop

_HIGH_BYTES: Final = 8 * MIB  # the buffers of both sides together; with more in it the sender is told to wait
_LOW_BYTES: Final = 2 * MIB
_READ_BYTES: Final = 128 * KIB  # that a loop reads at once


class Node(Protocol):
    """A machine, as the network sees it."""

    name: str
    is_up: bool


class SimFrame:
    """A frame in a pipe."""

    __slots__ = (
        "correlation_id",
        "crc",
        "flags",
        "lent",
        "message",
        "packed",
        "partition",
        "payload",
        "size",
        "topic_id",
    )

    def __init__(
        self,
        flags: int,
        correlation_id: int,
        message: Message,
        payload: Bytes = b"",
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
    ) -> None:
        self.flags = flags
        self.correlation_id = correlation_id
        self.message = message
        self.packed: tuple[int, int, bytes] | None = None
        self.payload = payload
        self.lent: Bytes | None = None  # the sender's own payload, where it is one that could be changed
        self.crc = 0  # of it
        self.topic_id = topic_id
        self.partition = partition
        self.size = 0

    def lend(self, payload: Bytes) -> None:
        """Lend the payload, which has to stay as it is from now on."""
        self.lent = payload
        self.crc = zlib.crc32(payload)

    def is_changed(self) -> bool:
        return self.lent is not None and zlib.crc32(self.lent) != self.crc


class PipeEnd(Protocol):
    """A side of a stream, as its pipes see it. The methods are called on its loop."""

    loop: VirtualLoop
    node: Node
    is_over: bool  # it takes nothing more
    is_reading: bool

    def take(self, frame: SimFrame) -> None: ...
    def ended(self, reason: str) -> None: ...
    def set_congested(self, yes: bool) -> None: ...


class Link:
    """A link from one machine to another, in this direction."""

    def __init__(self, delays: Delays) -> None:
        self.next_delay = self._usual_delay = delays.draw  # microseconds
        self.is_blocked = False
        self.blocks = 0  # how often it was blocked so far
        self.stuck: list[Pipe] = []  # that wait for it

    def slow_down(self, microseconds: int) -> None:
        """Everything takes so much longer; 0: no longer."""
        usual = self._usual_delay
        self.next_delay = (lambda: usual() + microseconds) if microseconds else usual


class Pipe:
    """One direction of a stream, from `source` to `target`."""

    __slots__ = (
        "_bytes",
        "_frames",
        "_is_congested",
        "_is_due",
        "_is_waiting",
        "_scheduler",
        "_unread",
        "is_cut",
        "link",
        "source",
        "target",
    )

    def __init__(self, scheduler: Scheduler, link: Link, source: PipeEnd, target: PipeEnd) -> None:
        self.link = link
        self.source = source
        self.target = target
        self.is_cut = False  # what is sent from now on gets nowhere
        self._scheduler = scheduler
        self._frames: deque[tuple[int, SimFrame | str]] = (
            deque()
        )  # and when they are due, behind those before; a text: the end
        self._bytes = 0  # that the other side has not read
        self._unread = 0  # of these, what waits for the turn in which it is read
        self._is_due = False  # an arrival is scheduled
        self._is_waiting = False  # for the link, or for the other side to read
        self._is_congested = False

    def __len__(self) -> int:
        """Frames on their way."""
        return len(self._frames)

    @property
    def is_congested(self) -> bool:
        return self._is_congested

    @property
    def bytes_unread(self) -> int:
        return self._bytes

    # --- what the source does -------------------------------------------------------------------------------------

    def send(self, frame: SimFrame) -> None:
        if self.is_cut:
            return
        self._bytes += frame.size
        if self._bytes > _HIGH_BYTES and not self._is_congested:
            self._is_congested = True
            self.source.loop.call_soon(self.source.set_congested, True)
        self._put(frame, self.link.next_delay())

    def end(self, reason: str, delay: int = 0) -> None:
        """Nothing more will come; the other side hears of it after all that was sent before."""
        if not self.is_cut:
            self._put(reason, self.link.next_delay() + delay)
            self.is_cut = True

    # --- what the world does --------------------------------------------------------------------------------------

    def lose_all_but(self, count: int) -> None:
        """Lose all frames on their way but the first few."""
        while len(self._frames) > count:
            frame = self._frames.pop()[1]
            if isinstance(frame, SimFrame):
                self._bytes -= frame.size

    def vanish(self, count: int = 0) -> None:
        """End without a word: of the frames on their way only the first few arrive, and not even an end after them."""
        self.lose_all_but(count)
        self.is_cut = True

    def go_on(self, delay: int = 0) -> None:
        """Go on, if what it waits for has happened."""
        if self._is_waiting:
            self._is_waiting = False
            self._schedule(self._scheduler.now + delay)

    # --- what the target does -------------------------------------------------------------------------------------

    def was_read(self, frame: SimFrame) -> None:
        self._bytes -= frame.size
        self._unread -= frame.size
        if self._unread <= _READ_BYTES and not self.link.is_blocked:
            self.go_on()
        if self._is_congested and self._bytes < _LOW_BYTES:
            self._is_congested = False
            source = self.source
            self._scheduler.after(self.link.next_delay(), source.loop.deliver, source.set_congested, False)

    # --- arrivals -------------------------------------------------------------------------------------------------

    def _put(self, frame: SimFrame | str, delay: int) -> None:
        due = self._scheduler.now + delay
        self._frames.append((due, frame))
        if not (self._is_due or self._is_waiting):
            self._schedule(due)

    def _schedule(self, when: int) -> None:
        self._is_due = True
        self._scheduler.at(when, self._arrive)

    def _arrive(self) -> None:
        self._is_due = False
        target, frames, now = self.target, self._frames, self._scheduler.now
        if self.link.is_blocked or not target.node.is_up:
            self._is_waiting = True
            self.link.stuck.append(self)
            return
        while frames and frames[0][0] <= now:
            if target.is_over:
                self._reset()
                return
            if not target.is_reading or self._unread > _READ_BYTES:
                self._is_waiting = True
                return
            frame = frames.popleft()[1]
            if isinstance(frame, str):
                target.loop.deliver(target.ended, frame)
            else:
                self._unread += frame.size
                target.loop.deliver(target.take, frame)
        if frames and not (self._is_due or self._is_waiting):  # what was delivered may have set them
            self._schedule(frames[0][0])

    def _reset(self) -> None:
        """The machine knows no such stream any more, and says so. (To an end it says nothing.)"""
        is_asked = any(isinstance(frame, SimFrame) for _, frame in self._frames)
        self.vanish()
        if is_asked:
            source = self.source
            delay = self.link.next_delay()
            self._scheduler.after(delay, source.loop.deliver, source.ended, "it was reset by the other side")
