"""The process of any coordinator, and the partition of an internal topic that it alone writes to.

`process.CoordinatorProcess` runs a core: that of groups (`raylog.groups`) or of transactions.
"""
