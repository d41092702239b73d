"""Compaction of a log: what to keep, writing it, swapping it in."""
