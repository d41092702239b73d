"""Members of groups as far as their heartbeats go: they take what they are told, and read nothing."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message
from raylog.groups.records.messages import GroupHeartbeat, GroupHeartbeatAnswer, Partitions, Profile


@dataclass
class Member:
    group: str
    name: str
    topic: str
    epoch: int = 0
    sequence: int = 0
    owned: Partitions = ()

    def heartbeat(self, wait_ms: int) -> GroupHeartbeat:
        self.sequence += 1
        profile = None
        if not self.epoch:
            profile = Profile("", "", "bench", "", 45_000, 300_000, "", (self.topic,), "").fields()
        return GroupHeartbeat(self.group, self.name, self.epoch, self.sequence, wait_ms, self.owned, profile)

    def hear(self, answer: Message) -> bool:
        """Whether it was told something new."""
        assert isinstance(answer, GroupHeartbeatAnswer)
        is_news = answer.epoch != self.epoch or answer.assignment is not None
        self.epoch = answer.epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return is_news
