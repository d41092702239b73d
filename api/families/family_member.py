"""A producer that is a member of a transaction family: it writes one part of a batch, and does not decide about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from raylog.api.families.member_requests import FamilyTicket, FamilyWork, MemberRequests
from raylog.api.producer.producer import Producer
from raylog.api.producer.producer_core import ProducerCore

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from raylog.api.producer.rules.producer_options import ProducerSettings


class FamilyMember(Producer):
    """A member of a family, in a task of a job; `ticket` is from the job's `TransactionFamily`.

        with FamilyMember(ticket, cluster=access) as member:
            member.send_many("counts", values, keys=keys)
            work = member.finish()                     # to be returned to the driver: `family.commit(batch, works)`

    Its transaction is open from the start, and stays so: readers of committed records see what the driver commits.
    FamilyFenced: another driver has taken over.
    """

    def __init__(self, ticket: FamilyTicket, **options: Unpack[ProducerSettings]) -> None:
        settings: dict[str, Any] = {**options, "transactional_id": ticket.family}
        super().__init__(**settings)
        try:
            self._core.call("joining a family", lambda seconds: self._member_requests().join(ticket, seconds), None)
        except BaseException:
            self.close()
            raise
        self._core.lay_routes()

    def __enter__(self) -> FamilyMember:
        return self

    def _make_core(self) -> ProducerCore:
        return ProducerCore(self.options, MemberRequests)

    def _member_requests(self) -> MemberRequests:
        requests = self._core.requests
        assert isinstance(requests, MemberRequests)
        return requests

    def finish(self, timeout: float | None = None) -> FamilyWork:
        """Deliver all. Nothing more is taken.

        TransactionAborted: a record was not delivered, so this part must not count. TransactionPending: not in time,
        call it again.
        """
        return self._core.call("finish", self._member_requests().finish, timeout)
