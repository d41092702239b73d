"""Tests of what ships: the sdist and the wheel, the pinned versions, and the list of dependencies."""
