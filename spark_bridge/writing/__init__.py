"""DataFrames into topics, all of a batch or nothing."""
