"""Clients of Kafka on raylog's gateway and, where one is named, on Apache Kafka beside it: `python -m bench kafka`."""
