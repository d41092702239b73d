"""`raylog log dump`: storage's dump, which then knows the records of all internal topics."""

from __future__ import annotations

from raylog.groups.dump.command import dump_command

__all__ = ["dump_command"]
