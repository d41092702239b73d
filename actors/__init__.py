"""The Ray actors, the replication protocol, and the streams in between: see docs/replication.md."""
