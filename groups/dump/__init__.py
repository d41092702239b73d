"""`python -m raylog.groups.dump PATH ...`: storage's dump, which then knows the records of all internal topics."""
