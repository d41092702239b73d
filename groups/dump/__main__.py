"""`python -m raylog.groups.dump PATH ...`."""

from raylog.groups.dump.command import dump_command

dump_command()
