"""`python -m raylog.groups.dump PATH ...`: storage's dump, which then knows the records of groups too."""

from raylog.groups import record_text
from raylog.storage.dump.command import dump_command

__all__ = ["dump_command", "record_text"]

if __name__ == "__main__":
    dump_command()
