"""The part of the world that a core may use: streams, timers, tasks, metrics. It does no I/O.

`environment.Environment` is all that a core sees of its process; `stream_interface` is what it sees of others.
"""
