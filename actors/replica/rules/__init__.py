"""Rules of replication: when a record is committed, where two logs part, which replicas are in sync. Pure."""
