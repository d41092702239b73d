"""Ray Data beside its own connector for Kafka, and beside Parquet."""
