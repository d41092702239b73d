"""One replica of a partition: its log, its role, who waits for it. Its process too.

`replica.Replica` is asked; `leader` and `follower` are its roles; `process` is what lives in an actor.
"""
