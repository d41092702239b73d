"""Which seed catches which mutation: written by `make mutations`, used by `make test`.

Seeds change their meaning whenever anything draws differently, in the scenario or in the code that it runs. A test that
finds a seed out of date says so; then run `make mutations` again.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
    "acks_at_append": 4,
    "high_watermark_is_own_end": 1,
    "high_watermark_below_minimum": 26,
    "high_watermark_goes_back": 2,
    "joins_below_epoch_start": 43,
    "cuts_at_high_watermark": 1,
    "cuts_nothing": 0,
    "last_epoch_unchecked": 0,
    "consumers_read_to_end": 3,
    "end_offset_at_once": 0,
    "duplicates_appended": 0,
    "anybody_elected": 0,
    "epoch_not_raised": 0,
    "leavers_stay_eligible": 1,
    "first_in_doubt": 83,
    "oldest_log_adopted": 13,
    "crc_unchecked": 8,
    "epoch_not_stamped": 0,
    "epoch_not_written": 9,
    "tail_left": 7,
    "unsynced_cut": 0,
    "crash_not_scanned": 0,
    "checkpoint_not_synced": 3,
    "followers_ignore_producers": 1,
    "producers_not_rebuilt": 1,
}
