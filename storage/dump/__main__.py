"""Lets the package be run."""

from raylog.storage.dump.command import dump_command

if __name__ == "__main__":
    dump_command()
