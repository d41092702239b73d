"""The brokers that replicas and coordinators are put on, and how they are moved. Pure."""
