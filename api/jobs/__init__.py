"""Parts that jobs of Spark and of Ray Data share: ranges read by tasks, rows written in a family's transactions."""
