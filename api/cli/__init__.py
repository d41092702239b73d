"""The command line: `raylog`. Modules here import Ray, the clients and rich only where a command runs.

`entry.py` is where the console script begins, `program.py` lists the commands and ends their runs, and `failures.py`
says in one line what went wrong. The commands are in `commands/`; the other packages are what they share.
"""
