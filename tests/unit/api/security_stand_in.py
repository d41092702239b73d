"""The security part of a cluster's handle, over a controller's part in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from raylog.actors.cluster.admin_requests import AdminRequest
from raylog.actors.controller.admin_calls import carry_out
from raylog.actors.controller.security_admin import SecurityAdmin
from raylog.actors.protocol.messages import Message
from raylog.actors.security.security_state import SecurityState
from raylog.api.admin.cluster_security import ClusterSecurity


class SecurityCalls:
    """What `ask_admin` asks, answered by the controller's own decisions."""

    def __init__(self) -> None:
        self.state = SecurityState()
        self.security = SecurityAdmin(lambda: self.state, self._make)
        self.asked: list[AdminRequest[Any]] = []

    async def _make(self, records: Sequence[Message], _timeout: float, _what: str) -> None:
        for record in records:
            self.state.apply(record)

    def ask(
        self, _call: str, request: AdminRequest[Any], inside: float, *, timeout: float, repeatable: bool, asked: str
    ) -> Any:
        assert 0 < inside < timeout
        assert repeatable is request.is_repeatable
        assert asked.startswith(request.call)
        self.asked.append(request)
        return asyncio.run(carry_out(cast(Any, self), request, inside))


class SecurityHandle(ClusterSecurity):
    """What a handle has for users and rules."""

    def __init__(self) -> None:
        self.controller = SecurityCalls()
        self._calls = cast(Any, self.controller)
