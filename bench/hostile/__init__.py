"""The worst that a client could send: batches, messages, and a client that sends them past all checks."""
