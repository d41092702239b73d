"""The cluster that a command means, and its way there: joining Ray, starting and stopping. `session.py` is its face."""
