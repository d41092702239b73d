"""A cluster in the hands of a program: starting, finding and stopping it; topics, groups, transactions, copies.

`cluster.Cluster` is its face; `formation` holds `start` and `connect`.
"""
