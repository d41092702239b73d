"""On which brokers replicas and coordinators lie, and how they are moved. Pure."""
