"""Benchmarks of what decides who may do what."""
