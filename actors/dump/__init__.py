"""Records of the cluster's own topics as text, for people."""
