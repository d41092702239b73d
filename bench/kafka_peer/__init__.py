"""Local brokers of Apache Kafka to measure beside: `python -m bench.kafka_peer DIRECTORY`, or `kafka_brokers`."""
