"""Java programs of Kafka against a cluster of three brokers: `make test-kafka-java`. They need a Java 17, and Maven."""
