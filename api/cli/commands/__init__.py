"""The commands, a module for each group of them, named in `program.py` or in their group and imported when called.

`rebalance_plan.py` and `top_frame.py` decide what `raylog cluster rebalance` moves and what `raylog top` shows.
"""
