"""Which member of a group reads which partition: pure functions. `assignment.py` has what goes in and out."""
