"""Streams between processes: frames, messages, admission, bounds."""

from __future__ import annotations

from typing import ClassVar

from raylog.errors.base import RaylogError


class StreamError(RaylogError):
    """Something about the streams between processes."""

    # Whether the request may have been carried out all the same (rules 27 and 30). Only its sequence, or a look at the
    # state, tells; a plain repetition could do it twice.
    outcome_unknown: ClassVar[bool] = False


class FrameInvalid(StreamError):
    """Bytes on a stream are not a frame; nothing behind them can be read."""

    advice = "The stream is closed. Both sides have to run raylog, in versions that know each other's frames."


class FrameTooLarge(FrameInvalid):
    """A frame is, or declares itself, larger than the stream takes."""

    advice = "Send less in one request, or raise the frame limit on both sides."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A frame of {self.size} bytes is over the limit of {self.limit}."


class MessageTooLarge(StreamError):
    """A client's message is larger than anything that a client has to say (rule 34). The stream goes on."""

    advice = "Ask for less at once. Clients of raylog cut long requests by themselves."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A client's message of {self.size} bytes is over the limit of {self.limit}."


class UnsupportedFrameVersion(FrameInvalid):
    """A frame has a layout this version does not know."""

    advice = "The other side runs another version of raylog: bring both to one."

    version: int
    known: int

    def describe(self) -> str:
        return f"A frame has protocol version {self.version}; this raylog speaks {self.known}."


class MessageUnknown(StreamError):
    """A whole frame carries a message of a kind, or a version of it, that this side does not know."""

    advice = "One side runs an older raylog: bring both to one version."

    kind: int
    version: int

    def describe(self) -> str:
        return f"Message kind {self.kind} in version {self.version} is unknown here."


class SocketInUse(StreamError):
    """Another process listens at the socket that this one wanted to make: it is left alone."""

    advice = "That process is an earlier one that still runs, or one of a copy of this cluster: stop it."

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
    """A client asked what only brokers, replicas, coordinators and the controller may ask (rule 33)."""

    advice = "Nothing was done. Only processes of the cluster hold the secret that this asks for."

    message: str
    peer: str

    def describe(self) -> str:
        return f"{self.message} is not for clients, and {self.peer} has proved to be one."


class PeerUnreachable(StreamError):
    """Nothing accepts a stream at that address."""

    retriable = True
    advice = "Its process may be gone or not up yet: refresh metadata and connect again."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"{self.peer} cannot be reached: {self.reason}."


class StreamNotOpen(StreamError):
    """The stream takes no new requests; this one was not carried out."""

    retriable = True
    advice = "Nothing was done: connect again and repeat it."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"The stream with {self.peer} is not open: {self.reason}."


class TooManyBytesInFlight(StreamError):
    """The bound on what the other side has not answered yet is reached (rule 31); nothing was sent."""

    retriable = True
    advice = "Wait for answers before sending more."

    size: int
    in_flight: int
    limit: int

    def describe(self) -> str:
        return f"{self.size} bytes were not sent: {self.in_flight} are in flight, and the limit is {self.limit}."


class StreamClosed(StreamError):
    """A stream ended while a request was in flight on it: the outcome is unknown (rules 27 and 30)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    peer: str
    reason: str

    def describe(self) -> str:
        return f"The stream with {self.peer} closed, outcome unknown: {self.reason}."


class RequestTimedOut(StreamError):
    """No answer came in time: the outcome is unknown (rule 27)."""

    retriable = True
    outcome_unknown = True
    advice = "The request may have been carried out: repeat it under the same sequence, or look before repeating it."

    peer: str
    timeout_ms: int

    def describe(self) -> str:
        return f"{self.peer} did not answer within {self.timeout_ms} ms."


class RemoteFailed(StreamError):
    """The other side answered with an error. `error` is that error, where its class is known here."""

    advice = "What helps, and whether trying again does, is up to that error."

    def __init__(self, peer: str, name: str, text: str, error: object = None) -> None:
        super().__init__(peer, name, text, error)
        self.peer = peer
        self.name = name
        self.text = text
        self.error = error if isinstance(error, RaylogError) else None

    def describe(self) -> str:
        return f"{self.peer} answered {self.name}: {self.text}"
