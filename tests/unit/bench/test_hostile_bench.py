"""What `tests/cluster/test_hostile_clients.py` attacks with leaves nothing out that a client may send (rule 34)."""

from __future__ import annotations

from bench.hostile.kinds import ATTACKED
from raylog.actors.protocol.messages import all_messages, is_for_clients


def test_every_kind_that_a_client_may_send_is_attacked_with() -> None:
    open_kinds = {kind for kind in all_messages() if is_for_clients(kind) and kind.__module__.startswith("raylog.")}
    assert open_kinds == {kind for kinds in ATTACKED.values() for kind in kinds}
