"""A group's state and every decision about it: members, rebalances, offsets. Pure."""
