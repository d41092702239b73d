"""What the worst client could send: batches, messages, and a client that sends them past all checks of its own."""
