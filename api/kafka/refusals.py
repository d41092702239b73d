"""Refused requests of administrators, in the log: one line a second at most, because clients can send many."""

from __future__ import annotations

import logging
from typing import Final

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka.protocol.api_versions import SERVED
from raylog.api.kafka.protocol.codecs import RequestHeader

_LONGEST: Final = 400
_log = logging.getLogger(__name__)


class Refusals:
    """Tells what was refused to which client, and why."""

    def __init__(self) -> None:
        self._rare = RareLog(_log)

    def tell(self, header: RequestHeader, what: str, error: Exception) -> None:
        """Say that this part of a request was refused."""
        name = SERVED[header.api_key].name
        self._rare.warning(
            "%s of Kafka client %r is refused for %s: %s", name, header.client_id, what[:_LONGEST], error
        )
