"""The states of a transaction and of a transaction family, and which step may follow which. Pure."""
