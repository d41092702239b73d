"""InitProducerId without a transactional id: an id that was never given out before (rule 18), in its first epoch.

The client raises the epoch itself where it has to (KIP-360). Transactions are not served by gateways yet.
"""

from __future__ import annotations

from typing import Any, Final

from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.kafka.protocol.error_codes import ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import RaylogError

_ANSWER_SECONDS: Final = 10.0


class ProducerIdentities:
    """Gives producers their ids."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def serve(self, request: Any) -> Any:
        """Serve InitProducerId."""
        answer = message_type("InitProducerIdResponse")
        if request.transactional_id is not None:
            return answer(error_code=ErrorCode.UNSUPPORTED_VERSION, producer_id=-1, producer_epoch=-1)
        try:
            found = await self._link.producer_id(_ANSWER_SECONDS)
        except RaylogError as error:
            return answer(error_code=code_of(error), producer_id=-1, producer_epoch=-1)
        return answer(producer_id=found, producer_epoch=0)
