"""`python -m raylog.storage.dump PATH ...`: what is in the files of a replica, and what is wrong with them.

It only reads, takes no lock, and works on a living replica as on a damaged one. The rooms:

    command.py    options, output, exit codes
    replica.py    one run: which files, in which order
    log.py        a log file: batches, records
    walk.py       getting past what is damaged in it
    sidecars.py   indexes, snapshots, checkpoints
    checks.py     comparing them with the batches
    files.py      names, and reading without touching
    formats.py    the records of internal topics: other modules register how theirs are read
    events.py     what can be said, as data and as JSON
    text.py       the same as text

Only formats whose modules have been imported are known. This package brings storage's own, the transaction markers; a
command line above the folders that register more imports those, and then calls `dump_command`.
"""
