"""The coordinator of groups: requests, timers, the log it writes to, the assignors it has run.

`coordinator.GroupCoordinator` is the core; `core` joins it to its partition, `process` to a real machine.
"""
