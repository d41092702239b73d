"""Workloads of `raylog bench`: the same records through raylog and through other logs, measured in one run."""
