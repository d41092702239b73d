"""Spark on Ray by RayDP: starting and stopping it, and what its processes need."""
