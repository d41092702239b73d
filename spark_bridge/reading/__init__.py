"""Topics as DataFrames, for a batch and for streams: planning in the driver, ranges read by tasks."""
