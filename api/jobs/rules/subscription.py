"""The topics or partitions that a job reads, as its user has named them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Subscription:
    """The partitions that are read. Exactly one is set."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def describe(self) -> str:
        """The same text for the same topics."""
        if self.topics:
            return "subscribe=" + ",".join(self.topics)
        if self.pattern:
            return f"subscribePattern={self.pattern}"
        return "assign=" + json.dumps({topic: list(self.partitions[topic]) for topic in sorted(self.partitions)})
