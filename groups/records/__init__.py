"""What groups say to their coordinator, and what of it is kept in `__consumer_offsets`. Pure."""
