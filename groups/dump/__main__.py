"""`python -m raylog.groups.dump PATH ...`."""

from raylog.groups.dump.command import dump_command

if __name__ == "__main__":
    dump_command()
