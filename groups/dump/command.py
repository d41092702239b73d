"""`python -m raylog.groups.dump PATH ...`: storage's dump, which then knows the records of all internal topics."""

from raylog.actors.dump import record_text as actors_record_text
from raylog.groups.dump import record_text
from raylog.storage.dump.command import dump_command

__all__ = ["actors_record_text", "dump_command", "record_text"]
