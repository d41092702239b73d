"""The Ray actors and the replication protocol. So far: finding the Ray to run on."""
