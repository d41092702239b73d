"""Record batches that a log refuses, or a reader cannot use."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class BatchError(RaylogError):
    """A record batch was refused; the log is unchanged."""


class CorruptBatch(BatchError):
    """The checksum (CRC) of a batch does not match its bytes."""

    retriable = True
    advice = "The bytes were damaged on their way: send or fetch them again."


class InvalidBatch(BatchError):
    """A batch arrived intact, but its content is not allowed."""

    advice = "Do not send the same bytes again: the program that wrote this batch has to change."


class UnsupportedMagic(InvalidBatch):
    """A batch has a format number (magic) that this version does not know."""

    magic: int

    def describe(self) -> str:
        return f"A record batch has magic {self.magic}; known are 2 (Kafka records) and 16 (raylog columns)."


class UnsupportedCodec(InvalidBatch):
    """The compression codec number or name is unknown."""

    codec: int | str

    def describe(self) -> str:
        return f"Compression codec {self.codec!r} is unknown; known are none, gzip, snappy, lz4, zstd (0 to 4)."


class NullKey(InvalidBatch):
    """A record without a key was sent to a compacted topic."""

    advice = "Compaction keeps the newest value per key: give every record of this topic a key."


class InvalidTimestamp(InvalidBatch):
    """A record's timestamp is outside what the topic accepts."""

    advice = "Check the writer's clock, and the topic's message.timestamp.before.max.ms and .after.max.ms."


class BatchTooLarge(BatchError):
    """A batch is over `max.message.bytes`."""

    advice = "Send smaller batches, or raise max.message.bytes on the topic."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A record batch of {self.size} bytes is over the limit of {self.limit}."


class PayloadTooLarge(BatchError):
    """A compressed batch would unpack to more bytes than the limit."""

    advice = "Compress less data into one batch, or raise the reader's limit on unpacked bytes."

    size: int
    limit: int

    def describe(self) -> str:
        return f"A compressed payload unpacks to {self.size} bytes or more; the limit is {self.limit}."
