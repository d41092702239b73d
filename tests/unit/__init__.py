"""Unit tests: plain functions and state machines, in the folders of the package. No Ray, no sleeping."""
