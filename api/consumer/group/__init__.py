"""A consumer as a member of a group: heartbeats, assignments, commits."""
