"""Parts that producers, consumers and administration share: finding a cluster, one link per process, retries, records.

`client_access` finds the cluster, `client_runtime` keeps the link.
"""
