"""What a broker does to its logs beside the replicas: compaction, deletion of files, scrubbing.

`housekeeper.Housekeeper` is its core; `calls` is how replicas hand work over.
"""
