"""Decisions of pools: how many actors, which of them go, whose fault a death is. No clock, no Ray."""
