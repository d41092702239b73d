"""One segment of a log: its file, its indexes, and what of producers and epochs is in it."""
