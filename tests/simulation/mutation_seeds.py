"""Which seed catches which mutation: written by `make mutations`, used by `make test`.

Seeds change their meaning whenever anything draws differently, in the scenario or in the code that it runs. A test that
finds a seed out of date says so; then run `make mutations` again.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
    "acks_at_append": 4,
    "high_watermark_is_own_end": 2,
    "high_watermark_below_minimum": 8,
    "high_watermark_goes_back": 5,
    "joins_below_epoch_start": 129,
    "cuts_at_high_watermark": 7,
    "cuts_nothing": 1,
    "last_epoch_unchecked": 1,
    "consumers_read_to_end": 1,
    "end_offset_at_once": 0,
    "duplicates_appended": 0,
    "anybody_elected": 0,
    "epoch_not_raised": 0,
    "leavers_stay_eligible": 0,
    "first_in_doubt": 83,
    "oldest_log_adopted": 26,
    "crc_unchecked": 0,
    "epoch_not_stamped": 0,
    "epoch_not_written": 7,
    "tail_left": 3,
    "unsynced_cut": 0,
    "crash_not_scanned": 0,
    "checkpoint_not_synced": 3,
    "followers_ignore_producers": 1,
    "producers_not_rebuilt": 0,
}
