"""Delivery against a leader that refuses, and a network that loses: in order, none twice, none lost, never stuck."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.api.producer.rules.delivery import BatchPart, Delivery
from raylog.api.producer.rules.producer_batch import Outcome, ProducerBatch, Writer
from raylog.errors import (
    BatchTooLarge,
    DeliveryTimedOut,
    InvalidTimestamp,
    NotEnoughReplicas,
    OutOfOrderSequence,
    RaylogError,
    RequestTimedOut,
    StreamClosed,
)
from raylog.storage.format.batch_codec import PLAIN_COLUMNS
from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, read_header
from tests.unit.api.model_leader import ModelLeader, batch_of


class Client:
    """A delivery, its leader, and requests between them that somebody has to move on."""

    def __init__(self, window: int = 5, *, is_transactional: bool = False) -> None:
        self.leader = ModelLeader()
        self.leader.is_of_transaction = is_transactional
        self.delivery = Delivery(window, True, is_transactional=is_transactional)
        self.form = PLAIN_COLUMNS
        self.added: list[ProducerBatch] = []
        self.queue: list[ProducerBatch] = []
        self.requests: list[tuple[BatchPart, bytes, int]] = []  # sent, not arrived
        self.late: list[tuple[bytes, int]] = []  # given up by the client, but on their way all the same
        self.ids = 0

    def offer(self, records: int) -> ProducerBatch:
        number = len(self.added)
        batch = batch_of(*(b"%d.%d" % (number, place) for place in range(records)))
        self.added.append(batch)
        self.queue.append(batch)
        return batch

    def pump(self) -> None:
        while self.delivery.ready(self.leader.key):
            part = self.delivery.next_again()
            if part is None and not self.queue:
                return
            if self.delivery.writer is None:
                if self.delivery.in_flight:
                    return
                self.ids += 1
                self.delivery.identify(Writer(self.ids))
                continue
            if part is None:
                part = self.delivery.add(self.queue.pop(0))
            payload = bytes(self.delivery.payload(part, self.form))
            self.delivery.start(part)
            self.requests.append((part, payload, self.leader.epoch))

    def arrive(self, place: int = 0) -> None:
        """A request is carried out and answered."""
        part, payload, epoch = self.requests.pop(place)
        if epoch != self.leader.epoch:
            self.delivery.failed(part, RequestTimedOut("leader", 0))
            return
        try:
            base = self.leader.append(payload)
        except RaylogError as error:
            self.delivery.failed(part, error)
        else:
            self.delivery.delivered(part, self.leader.key, Outcome(base))

    def refuse(self, error: RaylogError, place: int = 0) -> None:
        self.delivery.failed(self.requests.pop(place)[0], error)

    def lose_answer(self, place: int = 0) -> None:
        part, payload, epoch = self.requests.pop(place)
        if epoch == self.leader.epoch:
            with suppress(RaylogError):  # nobody hears of it
                self.leader.append(payload)
        self.delivery.failed(part, StreamClosed("leader", "it ended"))

    def give_up(self, place: int = 0) -> None:
        part, payload, epoch = self.requests.pop(place)
        self.late.append((payload, epoch))
        self.delivery.failed(part, RequestTimedOut("leader", 1))

    def arrive_late(self, place: int = 0) -> None:
        payload, epoch = self.late.pop(place)
        if epoch == self.leader.epoch:
            with suppress(RaylogError):  # nobody hears of it
                self.leader.append(payload)

    def finish(self) -> None:
        for _ in range(1000):
            self.pump()
            if not self.requests:
                break
            self.arrive()
        assert not self.delivery
        assert not self.queue
        assert all(batch.outcome is not None for batch in self.added)


def records_of(number: int, batch: ProducerBatch) -> list[tuple[bytes, int | RaylogError]]:
    """(value, offset or error) of each record."""
    found: list[tuple[bytes, int | RaylogError]] = []
    for place in range(batch.count):
        outcome, index = batch.outcome_of(place)
        found.append((b"%d.%d" % (number, place), outcome.error or outcome.base_offset + index))
    return found


def check(client: Client) -> None:
    log = client.leader.values
    offsets = []
    for number, batch in enumerate(client.added):
        for value, offset in records_of(number, batch):
            if isinstance(offset, RaylogError):
                assert log.count(value) <= 1
            else:
                assert log[offset] == value
                assert log.count(value) == 1, f"{value!r} is in the log {log.count(value)} times"
                offsets.append(offset)
    assert offsets == sorted(offsets)


def step(client: Client, random: Random, *, final: bool) -> None:
    client.pump()
    choices = ["offer", "arrive", "arrive", "arrive", "refuse", "lost", "give-up", "late", "elect", "final"]
    choice = random.choice(choices)
    place = random.randrange(len(client.requests)) if client.requests and random.random() < 0.2 else 0
    if choice == "offer":
        client.offer(random.randint(1, 4))
    elif choice == "late" and client.late:
        client.arrive_late(random.randrange(len(client.late)))
    elif choice == "elect":
        client.leader.epoch += random.random() < 0.3
    elif not client.requests:
        return
    elif choice == "arrive":
        client.arrive(place)
    elif choice == "refuse":
        client.refuse(NotEnoughReplicas("clicks", 0, 1, 2), place)
    elif choice == "lost":
        client.lose_answer(place)
    elif choice == "give-up":
        client.give_up(place)
    elif choice == "final" and final and random.random() < 0.3:
        client.refuse(InvalidTimestamp("too old"), place)


@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans())
@settings(max_examples=300, deadline=None)
def test_whatever_is_refused_lost_or_late(seed: int, window: int, final: bool) -> None:
    random = Random(seed)
    client = Client(window)
    client.leader.largest = random.choice([1, 2, 3, 10**9])
    for _ in range(80):
        step(client, random, final=final)
    client.finish()
    check(client)
    if not final and client.leader.largest > 1:
        assert all(batch.outcome is not None and batch.outcome.error is None for batch in client.added)


@given(st.integers(0, 2**32), st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_whatever_is_refused_lost_or_late_of_a_transaction(seed: int, window: int) -> None:
    """All that it can send may be under way from the beginning."""
    random = Random(seed)
    client = Client(window, is_transactional=True)
    client.leader.largest = random.choice([4, 2, 3, 10**9])
    for _ in range(80):
        step(client, random, final=False)
    client.finish()
    check(client)
    assert all(batch.outcome is not None and batch.outcome.error is None for batch in client.added)


@given(st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_an_unclean_election_does_not_stop_it(seed: int) -> None:
    random = Random(seed)
    client = Client()
    for _ in range(60):
        step(client, random, final=False)
        if random.random() < 0.05:
            client.leader.lose_tail(random.randint(1, 4))
    client.finish()
    fresh = client.offer(3)
    client.finish()
    assert fresh.outcome is not None
    assert fresh.outcome.error is None


def test_the_first_part_goes_alone() -> None:
    client = Client()
    for _ in range(7):
        client.offer(1)
    client.pump()
    assert len(client.requests) == 1
    client.arrive()
    client.pump()
    assert len(client.requests) == 5


def test_a_transaction_begins_with_all_that_may_be_under_way() -> None:
    client = Client(is_transactional=True)
    for _ in range(7):
        client.offer(1)
    client.pump()
    assert len(client.requests) == 5
    client.arrive(1)
    client.refuse(NotEnoughReplicas("clicks", 0, 1, 2))
    while client.requests:
        client.arrive()
    client.pump()
    assert len(client.requests) == 1, "after a failure the first goes alone"
    client.finish()
    check(client)
    assert client.ids == 1


def test_after_a_refusal_the_first_goes_alone_again_and_under_its_sequence() -> None:
    client = Client()
    for _ in range(4):
        client.offer(1)
    client.pump()
    client.arrive()
    client.pump()
    before = [payload for _, payload, _ in client.requests]
    client.refuse(NotEnoughReplicas("clicks", 0, 1, 2))
    client.pump()
    assert len(client.requests) == 2, "nothing is sent while others are in flight"
    client.refuse(OutOfOrderSequence(1, 2, 1))
    client.refuse(OutOfOrderSequence(1, 3, 1))
    client.pump()
    assert [payload for _, payload, _ in client.requests] == before[:1]
    client.finish()
    check(client)


def test_a_batch_that_is_too_large_goes_in_halves() -> None:
    client = Client()
    client.leader.largest = 3
    whole = client.offer(10)
    after = client.offer(1)
    client.finish()
    check(client)
    assert whole.outcome_of(9)[0].base_offset + whole.outcome_of(9)[1] == 9
    assert after.outcome == Outcome(10)


def test_halves_have_the_form_of_the_whole_and_what_was_encoded_keeps_its_form() -> None:
    client = Client()
    client.leader.largest = 3
    client.form = PLAIN_COLUMNS._replace(magic=MAGIC_KAFKA)
    client.offer(10)
    client.offer(1)
    client.pump()
    client.form = PLAIN_COLUMNS
    client.finish()
    check(client)
    assert [read_header(each).magic for each in client.leader.batches] == [*[MAGIC_KAFKA] * 4, MAGIC_COLUMNS]


def test_one_record_that_is_too_large_fails_alone() -> None:
    client = Client()
    client.offer(1)
    client.pump()
    client.refuse(BatchTooLarge(2, 1))
    client.offer(1)
    client.finish()
    assert [batch.outcome is not None and batch.outcome.error is None for batch in client.added] == [False, True]


def test_what_is_too_late_fails_and_leaves_room_for_others() -> None:
    client = Client()
    late, other = client.offer(1), client.offer(1)
    client.pump()
    (part,) = client.delivery.expired(2e9)
    client.delivery.abandon(part, DeliveryTimedOut("clicks", 0, 1, True, "no answer"))
    assert late.outcome is not None
    assert isinstance(late.outcome.error, DeliveryTimedOut)
    client.pump()
    assert len(client.requests) == 1, "it is in flight still"
    client.refuse(StreamClosed("leader", "it ended"))
    client.finish()
    assert other.outcome is not None
    assert other.outcome.error is None
    assert client.ids == 2, "a gap ends an identity"


def test_sequences_wrap() -> None:
    client = Client()
    client.offer(1)
    client.finish()
    client.delivery._next_sequence = 2**31 - 2
    client.leader._states = type(client.leader._states)()
    for _ in range(3):
        client.offer(3)
    client.finish()
    check(client)


@pytest.mark.parametrize("window", [1, 5])
def test_without_idempotence_nothing_has_a_sequence(window: int) -> None:
    client = Client(window)
    client.delivery = Delivery(window, False)
    for _ in range(4):
        client.offer(2)
    client.finish()
    check(client)
    assert client.ids == 0
