"""Requests of administrators, asked of the controller's actor."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from raylog.actors.cluster.admin_requests import AdminRequest
from raylog.api.connection.call_times import INSIDE

if TYPE_CHECKING:
    from raylog.api.connection.controller_calls import ControllerCalls

_T = TypeVar("_T")


def ask_admin(calls: ControllerCalls, request: AdminRequest[_T], timeout: float) -> _T:
    """The controller's answer, or one typed error within the time."""
    answer: _T = calls.ask(
        "admin", request, INSIDE * timeout, timeout=timeout, repeatable=request.is_repeatable, asked=request.asked
    )
    return answer
