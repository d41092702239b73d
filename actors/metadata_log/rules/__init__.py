"""Rules of the metadata log: when a record is committed, which log wins, and the log in memory. Pure."""
