"""Clients and tools of Kafka on a real cluster, through the gateways of its brokers.

Those that need no Java use the cluster of tests/cluster/clients, in the same process. `java/` has a run of its own.
"""
