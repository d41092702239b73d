"""A transaction coordinator before producers, an operator, time and crashes in any order.

What is known of a transaction is what its producer was answered and what its markers said. However it is asked, and
whoever takes over from the log: one outcome for each identity, and identities only rise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raylog.actors.coordinators.claimed_log import Replayed
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import WriteMarker
from raylog.actors.protocol.transaction_messages import (
    AbortTransaction,
    AddGroup,
    AddPartition,
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    ResolveStaged,
    TransactionEnded,
)
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.actors.transactions.rules import transaction
from raylog.actors.transactions.rules.transaction import LAST_EPOCH, MARKER_EPOCH, Phase, identity_in_use
from raylog.errors import (
    ConcurrentTransaction,
    InvalidTransactionState,
    ProducerFenced,
    RaylogError,
    TransactionTimedOut,
)
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import HandLink, HandLog, OneProcess

ID = "mover"
TIMEOUT_MS = 1000
TOPIC = b"t" * 16
PARTITIONS = 3
Identity = tuple[int, int]
_M = TypeVar("_M", bound=Message)

_VIEW = TopicView(
    "t", TOPIC, tuple(PartitionLeader("t", TOPIC, each, 1, 0, (Endpoint.parse("tcp:h:1"),), "n") for each in range(3))
)


class _KeptLog(HandLog):
    """The next coordinator replays what the one before has written."""

    async def replay(self, _end: int) -> AsyncIterator[list[Replayed]]:
        yield [Replayed(key, value, offset) for offset, (key, value) in enumerate(list(self.entries))]


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.world = World(7)
        self.one = OneProcess(self.world)
        self.log = self.one.make(_KeptLog)
        self.link = HandLink()
        self.link.view = _VIEW
        self.identities: list[Identity] = []  # that somebody was given, in their order
        self.outcomes: dict[Identity, bool] = {}  # whether it was committed
        self.added: dict[Identity, set[int]] = {}
        self.fenced: set[Identity] = set()
        self.start()

    @initialize(near_the_end=st.booleans())
    def first(self, near_the_end: bool) -> None:
        self.patch.setattr(transaction, "FIRST_EPOCH", LAST_EPOCH - 2 if near_the_end else 0)
        self.init(renews=False)

    def start(self) -> None:
        spec = cast(Any, SimpleNamespace(term=0, partition=0))
        self.core = self.one.make(
            lambda: TransactionCoordinator(self.one.env, spec, cast(Any, self.log), cast(Any, self.link))
        )
        self.one.do(self.core.start())

    def teardown(self) -> None:
        self.world.__exit__(None, None, None)
        self.patch.undo()

    # --- what may happen ------------------------------------------------------------------------------------------

    @rule(renews=st.booleans())
    def init(self, renews: bool) -> None:
        """Another producer takes the id; or the one that has it asks again, under what it had."""
        had = self.identities[-1] if renews else (-1, -1)
        try:
            answer = self.ask(InitProducer(ID, TIMEOUT_MS, *had), ProducerInitialised)
        except ConcurrentTransaction:
            if not renews:
                self.fenced.update(self.identities)
            return
        except ProducerFenced:
            assert renews, "whoever comes anew is let in"
            return
        if not renews:
            self.fenced.update(self.identities)
        self.given(answer.producer_id, answer.epoch)

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        together=st.sets(st.integers(0, PARTITIONS - 1)),
        back=st.integers(0, 2),
    )
    def add(self, partition: int, together: set[int], back: int) -> None:
        """By the present identity, or by one of before."""
        identity = self.identity(back)
        with suppress(ProducerFenced, TransactionTimedOut, ConcurrentTransaction):
            others = tuple(("t", TOPIC, each) for each in sorted(together))
            self.ask(AddPartition(ID, *identity, "t", TOPIC, partition, others), None)
            assert identity not in self.outcomes, "it has joined a transaction that is over"
            assert identity not in self.fenced
            self.added.setdefault(identity, set()).add(partition)

    @rule(back=st.integers(0, 1))
    def add_group(self, back: int) -> None:
        identity = self.identity(back)
        with suppress(ProducerFenced, TransactionTimedOut, ConcurrentTransaction):
            self.ask(AddGroup(ID, *identity, "readers"), None)
            assert identity not in self.outcomes
            assert identity not in self.fenced

    @rule(commits=st.booleans(), back=st.integers(0, 2))
    def end(self, commits: bool, back: int) -> None:
        identity = self.identity(back)
        try:
            answer = self.ask(EndTransaction(ID, *identity, commits), TransactionEnded)
        except TransactionTimedOut:
            assert self.outcomes[identity] is False
            assert commits
            return
        except (ProducerFenced, InvalidTransactionState, ConcurrentTransaction):
            return
        assert identity not in self.fenced
        if (answer.producer_id, answer.epoch) != identity:
            assert self.outcomes.setdefault(identity, commits) == commits
            self.given(answer.producer_id, answer.epoch)
        else:
            assert commits, "an abort raises the epoch in any case"
            assert not self.added.get(identity)

    @rule()
    def operator_aborts(self) -> None:
        record = self.core.known(ID)
        assert record is not None
        identity = identity_in_use(record)
        with suppress(InvalidTransactionState):
            self.ask(AbortTransaction(ID, *identity), None)
            assert self.outcomes.setdefault(identity, False) is False
            self.fenced.add(identity)

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.2]))
    def time_passes(self, seconds: float) -> None:
        record = self.core.known(ID)
        assert record is not None
        self.world.run_for(seconds)
        if record.phase == Phase.ONGOING and seconds > TIMEOUT_MS / 1000:
            assert self.outcomes.setdefault((record.producer_id, record.epoch), False) is False

    @rule()
    def crash(self) -> None:
        """The next one knows what was committed, and finishes what was begun."""
        self.one.do(self.core.close())
        self.start()
        self.world.run_for(0.1)

    @rule(commits=st.booleans())
    def crash_before_the_markers(self, commits: bool) -> None:
        """PREPARE is in the log, and nobody has heard of it."""
        identity = self.identity(0)
        record = self.core.known(ID)
        assert record is not None
        if record.phase != Phase.ONGOING or (record.producer_id, record.epoch) != identity:
            return
        self.link.refusal = ProducerLost()
        asked = self.one.begin(self._answer(EndTransaction(ID, *identity, commits)))
        self.world.run_for(0.05)
        asked.cancel()
        self.one.do(self.core.close())
        self.link.refusal = None
        assert self.outcomes.setdefault(identity, commits) == commits
        self.start()
        self.world.run_for(0.1)

    # --- what must be true ----------------------------------------------------------------------------------------

    @invariant()
    def markers_agree(self) -> None:
        """Each partition of an ended transaction has its marker, and all of a transaction say the same."""
        for _, message in self.link.asked:
            if isinstance(message, WriteMarker):
                identity, commits = (message.producer_id, message.producer_epoch - 1), message.commits
                assert message.producer_epoch <= MARKER_EPOCH
            else:
                assert isinstance(message, ResolveStaged)
                identity, commits = (message.producer_id, message.producer_epoch), message.commit
            assert self.outcomes.setdefault(identity, commits) == commits

    @invariant()
    def what_ended_has_all_its_markers(self) -> None:
        record = self.core.known(ID)
        if record is None or not Phase(record.phase).is_idle:
            return
        told = {
            (message.producer_id, message.producer_epoch - 1, leader.partition)
            for leader, message in self.link.asked
            if isinstance(message, WriteMarker)
        }
        for identity, partitions in self.added.items():
            assert {(*identity, each) for each in partitions} <= told

    # --- how ------------------------------------------------------------------------------------------------------

    def given(self, producer_id: int, epoch: int) -> None:
        identity = producer_id, epoch
        assert epoch <= LAST_EPOCH
        assert identity not in self.outcomes
        if self.identities and identity != self.identities[-1]:
            assert identity > self.identities[-1], "producer ids and epochs rise"
        if identity not in self.identities:
            self.identities.append(identity)

    def identity(self, back: int) -> Identity:
        return self.identities[max(0, len(self.identities) - 1 - back)]

    def ask(self, message: Message, expected: type[_M] | None) -> _M:
        answer = self.one.do(self._answer(message))
        if expected is not None:
            assert isinstance(answer, expected)
        return cast(_M, answer)

    async def _answer(self, message: Message) -> Any:
        answer = await self.core.handle(cast(Any, SimpleNamespace(message=message)))
        return None if answer is None else cast(Any, answer).message


class ProducerLost(RaylogError):
    """Nobody takes a marker."""


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
