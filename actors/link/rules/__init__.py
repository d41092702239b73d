"""Knowledge of a link about the cluster, and how news change it. Pure."""
