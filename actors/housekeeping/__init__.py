"""Work on a broker's logs in a process beside its replicas: compaction and scrubbing.

`housekeeper.Housekeeper` is its core; `calls` is how replicas hand work over.
"""
