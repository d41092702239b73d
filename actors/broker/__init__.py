"""A broker: its directories, the replicas on it, its link to the controller, its copy of the metadata.

`broker.Broker` is the core.
"""
