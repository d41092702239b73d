"""Which nodes and settings a Spark session gets. Pure."""
