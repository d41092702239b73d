"""The processes of coordinators, and the partition of an internal topic that each coordinator alone writes to.

`host.CoordinatorHost` is a process that holds many; `coordinator.HostedCoordinator` is one of them, which runs a core:
that of groups (`raylog.groups`) or of transactions.
"""
