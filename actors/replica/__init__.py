"""One replica of a partition: its log, its role, the requests that wait at it, and its process.

`replica.Replica` is asked; `leader` and `follower` are its roles; `process` is what lives in an actor.
"""
