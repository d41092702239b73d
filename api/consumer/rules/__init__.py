"""What a consumer decides: options, positions, what of a fetched piece is visible, records and columns of it. Pure."""
