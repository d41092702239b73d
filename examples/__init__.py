"""Pipelines of the field, short and whole. Each runs by one command, `python -m examples.click_counts` say.

Each module has the part that a program of yours would have, and a `main` that gives it a cluster and some data.
"""
