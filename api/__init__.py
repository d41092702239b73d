"""What people touch: starting a cluster, and a handle for all that can be asked of it."""
