"""`make demo`: a replicated log on this machine, a leader that dies under load, and a Spark job on the same records."""
