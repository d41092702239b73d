"""Hypothesis profiles, and Ctrl-C, for every test folder.

`ci` (the default) draws the same examples on every run, so a failure is the change's own. `deep` draws
others, and many more: HYPOTHESIS_PROFILE=deep make test-unit
"""

import os
import signal

from hypothesis import HealthCheck, settings

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.register_profile(
    "deep",
    deadline=None,
    derandomize=False,
    print_blob=True,
    max_examples=5_000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell's background jobs are born deaf to Ctrl-C, and so are their children. Some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
