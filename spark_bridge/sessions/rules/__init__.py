"""Nodes and settings that a Spark session gets. Pure."""
