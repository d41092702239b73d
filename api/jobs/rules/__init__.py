"""Decisions on what the tasks of a job read, and the columns of their rows. Pure."""
