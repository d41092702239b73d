"""Old segments that may go: by age, by size, and because their records were deleted.

What its leader has just written stays for a while, however old its timestamps are: whoever imports old records can
read them. That is known of what this process wrote; what it found at its opening has been there for long enough.

What must stay true: only a prefix of the sealed segments goes, and nothing at or above `keep_from`, the lower of high
watermark and last stable offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raylog.config import NO_LIMIT, TopicConfig
from raylog.storage.format.record_batch import NO_TIMESTAMP


class SegmentFacts(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int
    written_ms: int = NO_TIMESTAMP  # when something was written there last


class Expired(NamedTuple):
    base_offset: int
    reason: str


def expired_segments(
    sealed: Iterable[SegmentFacts],
    total_bytes: int,
    config: TopicConfig,
    now_ms: int,
    log_start_offset: int,
    keep_from: int,
    decides: bool = True,
    spared_ms: int = 0,
) -> list[Expired]:
    """The oldest segments that are to be deleted, in order, each with the reason for an operator to read.

    `total_bytes` is what the log holds now. `decides`: by age and size too, not by the log start offset alone; by age
    only what was written `spared_ms` ago. No more of `sealed` is looked at than the first segment that stays.
    """
    expired = []
    total = total_bytes
    for facts in sealed:
        if facts.next_offset > keep_from:
            break
        reason = _below_start(facts, log_start_offset)
        if reason is None and decides:
            reason = _too_old_or_too_much(facts, total, config, now_ms, spared_ms)
        if reason is None:
            break
        expired.append(Expired(facts.base_offset, reason))
        total -= facts.size
    return expired


def _below_start(facts: SegmentFacts, log_start_offset: int) -> str | None:
    if facts.next_offset > log_start_offset:
        return None
    return f"all its records are below the log start offset {log_start_offset}"


def _too_old_or_too_much(
    facts: SegmentFacts, total: int, config: TopicConfig, now_ms: int, spared_ms: int
) -> str | None:
    if not config.deletes_old_segments:
        return None
    if now_ms - facts.written_ms >= spared_ms and is_past(facts.largest_timestamp, config, now_ms):
        return f"its newest record is over retention.ms={config.retention_ms} old"
    if config.retention_bytes != NO_LIMIT and total - facts.size >= config.retention_bytes:
        return f"the partition holds {total} bytes, over retention.bytes={config.retention_bytes}"
    return None


def is_past(largest_timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Whether a segment is too old. One without any timestamp holds nothing but compacted-away offsets."""
    if config.retention_ms == NO_LIMIT:
        return False
    return largest_timestamp == NO_TIMESTAMP or now_ms - largest_timestamp > config.retention_ms
