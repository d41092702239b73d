"""Which seed catches which mutation: written by `make mutations`, used by `make test`.

Seeds change their meaning whenever anything draws differently, in the scenario or in the code that it runs. The test
tries a few of the next seeds as well, and says so if none of them tells; then run `make mutations` again.
"""

from __future__ import annotations

from typing import Final

SEEDS: Final[dict[str, int]] = {
    "acks_at_append": 1,
    "counts_before_sync": 37,
    "failed_sync_carried_on": 52,
    "high_watermark_is_own_end": 3,
    "high_watermark_ignores_joining": 41,
    "high_watermark_below_minimum": 5,
    "high_watermark_goes_back": 11,
    "proposal_counts_at_once": 78,
    "unknown_proposal_forgotten": 41,
    "joins_below_high_watermark": 189,
    "joins_blindly": 186,
    "cuts_at_high_watermark": 5,
    "cuts_nothing": 0,
    "does_not_ask_again": 5,
    "answers_for_unknown_epoch": 5,
    "last_epoch_unchecked": 0,
    "refused_push_acknowledged": 41,
    "goes_on_when_replaced": 3,
    "consumers_read_to_end": 5,
    "end_offset_at_once": 1,
    "fetch_above_high_watermark_refused": 2,
    "duplicates_appended": 0,
    "gaps_taken": 98,
    "repetition_answered_at_once": 246,
    "anybody_elected": 0,
    "epoch_not_raised": 0,
    "announced_before_durable": 3,
    "unproven_stays": 20,
    "leavers_stay_eligible": 21,
    "first_in_doubt": 166,
    "older_controller_obeyed": 93,
    "promise_not_kept": 93,
    "commit_without_majority": 286,
    "acknowledged_before_sync": 39,
    "divergent_tail_kept": 3,
    "oldest_log_adopted": 7,
    "adopted_without_majority": 3,
    "producer_ids_not_recorded": 16,
    "crc_unchecked": 40,
    "epoch_not_stamped": 0,
    "reboot_not_doubted": 20,
    "blank_not_doubted": 32,
    "epoch_not_written": 0,
    "tail_left": 0,
    "unsynced_cut": 0,
    "damage_cut": 227,
    "crash_not_scanned": 1,
    "checkpoint_not_synced": 0,
    "checkpoint_not_renamed": 104,
    "followers_ignore_producers": 1,
    "producers_not_rebuilt": 0,
}
