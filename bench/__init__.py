"""Benchmarks: `python -m bench` (or `make bench`) measures, and prints each figure beside its goal and a raw limit.

Every figure is the median of several rounds taken in one run; where there is a raw limit of the machine to compare
with, both are measured in turn, round by round, so that a noisy neighbour hits both.
"""
