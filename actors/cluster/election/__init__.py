"""The leader of a partition, its ISR, and what becomes of both when a replica comes, goes or is damaged. Pure."""
