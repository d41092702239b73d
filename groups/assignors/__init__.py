"""Functions that say which member of a group reads which partition. Pure. `assignment.py` has what goes in and out."""
