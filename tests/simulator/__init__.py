"""Stand-ins for the world outside: disk, network and clock, driven by a seed."""
