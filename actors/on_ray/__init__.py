"""All of the servers that imports Ray: actors, launching and finding them, data directories on nodes, metrics."""
