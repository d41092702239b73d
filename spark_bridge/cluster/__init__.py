"""The way of a Spark process to the brokers, without Ray."""
