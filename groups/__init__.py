"""Consumer groups: who reads which partition, and how far: see docs/groups.md."""
