"""When a metadata record is committed, which log wins, and what a log holds in memory. Pure."""
