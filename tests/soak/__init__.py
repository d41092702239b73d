"""Tests that run for a long time: `make soak`."""
