"""What a link knows of the cluster, and what it does with news. Pure."""
