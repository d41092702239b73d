"""The state of a cluster and every decision about it: who leads, who is in sync, where replicas lie. Pure.

`state.ClusterState` is made of metadata records (`metadata_fold`); every other module decides something from it.
"""
