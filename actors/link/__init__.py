"""The way of a process to a cluster: which brokers and leaders there are, and requests to them.

`cluster_link.ClusterLink` is its face. Clients, coordinators and housekeepers use it.
"""
