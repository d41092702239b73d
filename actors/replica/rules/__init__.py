"""When a record is committed, where two logs part, who is in sync. Pure."""
