"""Streams between processes: frames, messages, admission, bounds."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class StreamError(RaylogError):
    """A stream between two processes has a problem."""

    # True: the request may have been carried out (rules 27 and 30). Only its sequence number or the state can tell.
    # Repeating it blindly could do it twice.
    outcome_unknown: ClassVar[bool] = False


class FrameInvalid(StreamError):
    """Bytes on a stream are not a frame, so nothing after them can be read."""

    advice = "The stream is closed. Both sides have to run raylog, in versions that can read the frames of the other."


class FrameTooLarge(FrameInvalid):
    """A frame is larger than the stream accepts, or says that it is."""

    advice = "Send less in one request, or raise the frame limit on both sides."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A frame of {self.size} bytes is over the limit of {self.limit}."


class MessageTooLarge(StreamError):
    """A client's message is larger than any that a client needs (rule 34). The stream stays open."""

    advice = "Ask for less at once. raylog's own clients split long requests."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A client's message of {self.size} bytes is over the limit of {self.limit}."


class UnsupportedFrameVersion(FrameInvalid):
    """A frame has a layout that this version does not know."""

    advice = "The other side runs another version of raylog: use the same version on both sides."

    version: int
    known: int

    def describe(self) -> str:
        return f"A frame has protocol version {self.version}; this raylog speaks {self.known}."


class MessageUnknown(StreamError):
    """A frame carries a message whose kind or version this side does not know."""

    advice = "One side runs an older raylog: use the same version on both sides."

    kind: int
    version: int

    def describe(self) -> str:
        return f"Message kind {self.kind} in version {self.version} is unknown here."


class SocketInUse(StreamError):
    """Another process listens at the socket that this one wants to create. That socket is left alone."""

    advice = "Stop that process: it is an earlier one that still runs, or belongs to a copy of this cluster."

    path: str

    def describe(self) -> str:
        return f"Another process listens at {self.path}."


class PeerNotAdmitted(StreamError):
    """One side of a new stream did not prove that it holds the cluster's secret."""

    advice = "Both sides need the secret of the same cluster, and the address has to be the one its owner gave out."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"No stream with {self.peer}: {self.reason}."


class InternalOnly(StreamError):
    """A client sent a request that only processes of the cluster may send (rule 33)."""

    advice = "Nothing was done. Only processes of the cluster hold the secret that this request needs."

    message: str
    peer: str

    def describe(self) -> str:
        return f"{self.message} is not for clients, and {self.peer} is connected as a client."


class PeerUnreachable(StreamError):
    """Nothing accepts a stream at that address."""

    retriable = True
    advice = "Its process may be gone, or still starting: refresh metadata and connect again."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"{self.peer} cannot be reached: {self.reason}."


class StreamNotOpen(StreamError):
    """The stream takes no new requests. This one was not carried out."""

    retriable = True
    advice = "Nothing was done: connect again and repeat it."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"The stream with {self.peer} is not open: {self.reason}."


class TooManyBytesInFlight(StreamError):
    """Too many bytes of requests are still unanswered (rule 31). Nothing was sent."""

    retriable = True
    advice = "Wait for answers before sending more."

    size: int
    in_flight: int
    limit: int

    def describe(self) -> str:
        return f"{self.size} bytes were not sent: {self.in_flight} are in flight, and the limit is {self.limit}."


class TooManyWatches(StreamError):
    """A client watches partitions for more consumers than one stream may (rule 31)."""

    retriable = True
    advice = "Run fewer consumers of many partitions in one process. They go on reading, and ask more often."

    watches: int

    def describe(self) -> str:
        return f"This stream has {self.watches} watches already, and may have no more."


class StreamClosed(StreamError):
    """A stream ended while a request was in flight on it: the outcome is unknown (rules 27 and 30)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it with the same sequence number, or look at the state."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"The stream with {self.peer} closed, outcome unknown: {self.reason}."


class RequestTimedOut(StreamError):
    """No answer came in time: the outcome is unknown (rule 27)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it with the same sequence number, or look at the state."

    peer: str
    timeout_ms: int

    def describe(self) -> str:
        return f"{self.peer} did not answer within {self.timeout_ms} ms."


class AnswerUnexpected(StreamError):
    """The other side answered with a message of another kind than the request asks for. The outcome is unknown."""

    outcome_unknown = True
    advice = "The two sides run different versions of raylog: use the same version on both sides."

    peer: str
    expected: str
    answer: str

    def describe(self) -> str:
        return f"{self.peer} answered with {self.answer} and not with {self.expected}."


class RemoteFailed(StreamError):
    """The other side answered with an error. `error` is that error, where its class is known here."""

    advice = "That error says what helps, and whether to try again."

    def __init__(self, peer: str, name: str, text: str, error: object = None) -> None:
        super().__init__(peer, name, text, error)
        self.peer = peer
        self.name = name
        self.text = text
        self.error = error if isinstance(error, RaylogError) else None

    def describe(self) -> str:
        return f"{self.peer} answered {self.name}: {self.text}"
