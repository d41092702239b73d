"""Rebuilding producer state from the log: the same steps for recovery and after a truncation."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.segment.batch_scan import ChainBroken
from raylog.storage.segment.producer_state import ProducerStates, take_in
from raylog.storage.segment.segment import Segment
from raylog.storage.segment.segment_list import SegmentList
from raylog.storage.segment.transaction_index import TransactionIndex

_log = logging.getLogger(__name__)


def replay(states: ProducerStates, segments: Iterable[Segment], now_ms: int) -> None:
    """Take in every batch of `segments`; those whose transaction index is unknown get one on the way."""
    for segment in segments:
        transactions = TransactionIndex()
        try:
            for _, header, batch in segment.scan():
                aborted = take_in(states, header, batch, now_ms)
                if aborted is not None:
                    transactions.add(aborted)
        except ChainBroken as broken:
            raise segment.damaged(broken.position, broken.reason) from broken
        if not segment.transactions_known:
            segment.set_transactions(transactions)


def states_before(segments: SegmentList, at: int, now_ms: int) -> ProducerStates:
    """The state after everything before segment number `at`: the nearest sound snapshot, and the batches after it."""
    for start in range(at, -1, -1):
        segment = segments[start]
        try:
            states = segment.load_snapshot()
        except SealBroken as broken:
            if start > 0:
                _log.info("%s; going further back for the producers' state.", broken)
            continue
        replay(states, [segments[number] for number in range(start, at)], now_ms)
        return states
    states = ProducerStates()
    replay(states, [segments[number] for number in range(at)], now_ms)
    return states


def know_transactions(segments: SegmentList, segment: Segment, now_ms: int) -> TransactionIndex:
    """The aborted transactions of `segment`, made again from the batches where the file is not to be believed."""
    if not segment.transactions_known:
        try:
            segment.load_transactions()
        except SealBroken as broken:
            _log.warning("%s; the transaction index is made again from the log.", broken)
            at = list(segments).index(segment)
            replay(states_before(segments, at, now_ms), [segment], now_ms)
    return segment.transactions
