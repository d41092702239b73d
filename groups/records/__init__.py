"""Messages of groups to their coordinator, and what of them is kept in `__consumer_offsets`. Pure."""
