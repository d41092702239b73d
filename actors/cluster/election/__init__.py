"""Who leads a partition, who is in its ISR, and what becomes of it when a replica comes, goes or is damaged. Pure."""
