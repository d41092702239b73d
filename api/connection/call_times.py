"""The time that a call of the controller takes at most, and how much of that is the controller's own."""

from __future__ import annotations

from typing import Final

CALL_SECONDS: Final = 30.0
INSIDE: Final = 0.95  # of a call's time is the controller's, so that its own word on what is missing comes first
