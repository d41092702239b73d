"""Decisions on reading and writing Datasets: where a read begins and ends, its tasks, its columns. Pure."""
