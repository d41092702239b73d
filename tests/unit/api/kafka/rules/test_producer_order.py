"""The order of an idempotent producer's batches over leaders that do not know it yet (rule 18)."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Final

import pytest

from raylog.api.kafka.rules.producer_order import Ending, Leadership, Numbered, ProducerOrder, Turn, Verdict, numbered
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import read_header

PARTITION: Final = ("clicks", 0)
OLD: Final[Leadership] = (b"t" * 16, 7)
NEW: Final[Leadership] = (b"t" * 16, 8)


def batch(first: int, *, count: int = 1, epoch: int = 0, producer: int = 9) -> Numbered:
    return Numbered(producer, epoch, first, (first + count) % 2**31)


class Sent:
    """Batches of one partition: `come` returns the verdict in a letter."""

    def __init__(self, most_kept: int = 100) -> None:
        self.order = ProducerOrder(most_kept)
        self.turns: dict[Numbered, Turn] = {}

    def come(self, *batches: Numbered, under: Leadership = OLD) -> str:
        verdicts = ""
        for each in batches:
            self.turns[each] = turn = self.order.arrived(PARTITION, each, under)
            verdicts += turn.verdict.name[0]
        assert self.order.broken_invariants() == []
        return verdicts

    def end(self, one: Numbered, ending: Ending) -> list[Numbered]:
        """Return the batches that wait no more, each of those that may be sent being begun."""
        decided = self.order.ended(self.turns[one], ending)
        for turn in decided:
            following = self.order.begun(turn) if turn.verdict is Verdict.SEND else None
            decided += [] if following is None else [following]
        assert self.order.broken_invariants() == []
        return [turn.batch for turn in decided]


def test_the_first_batch_under_a_leader_is_sent_alone() -> None:
    sent = Sent()
    assert sent.come(batch(0), batch(1), batch(2)) == "SWW"
    assert sent.end(batch(0), Ending.TAKEN) == [batch(1), batch(2)]
    assert sent.come(batch(3), batch(4)) == "SS"
    assert sent.come(batch(0, producer=10), batch(1, producer=10)) == "SW"


def test_what_waits_behind_a_batch_that_fails_is_refused_until_it_comes_in_order() -> None:
    sent = Sent()
    sent.come(batch(0), batch(1), batch(2))
    assert sent.end(batch(0), Ending.REPEATED) == [batch(1), batch(2)]
    assert [sent.turns[batch(number)].verdict for number in (1, 2)] == [Verdict.REFUSE] * 2
    assert sent.come(batch(3), under=NEW) == "R"
    assert sent.come(batch(0), batch(4), batch(1), under=NEW) == "SRW"
    assert sent.end(batch(0), Ending.TAKEN) == [batch(1)]
    assert sent.come(batch(5), batch(2), batch(3), batch(4), batch(5), under=NEW) == "RSSSS"


def test_what_was_sent_before_its_predecessor_failed_again_does_not_pass_it() -> None:
    sent = Sent()
    sent.come(batch(0), batch(1))
    sent.end(batch(0), Ending.REPEATED)
    assert sent.come(batch(0), under=NEW) == "S"
    sent.end(batch(0), Ending.REPEATED)
    assert sent.come(batch(1), under=NEW) == "R"  # it was sent when the client had heard of the first failure only
    assert sent.come(batch(0), batch(1), under=NEW) == "SW"


def test_a_batch_does_not_pass_one_that_is_open_under_another_leader() -> None:
    sent = Sent()
    sent.come(batch(0))
    sent.end(batch(0), Ending.TAKEN)
    assert sent.come(batch(1), batch(2)) == "SS"
    assert sent.come(batch(3), under=NEW) == "R"
    sent.end(batch(1), Ending.TAKEN)
    sent.end(batch(2), Ending.TAKEN)
    assert sent.come(batch(4), batch(3), batch(4), under=NEW) == "RSW"


def test_what_is_given_up_lets_the_next_go_on_alone() -> None:
    sent = Sent()
    sent.come(batch(0), batch(1), batch(2))
    assert sent.end(batch(0), Ending.GIVEN_UP) == [batch(1)]
    assert sent.come(batch(3)) == "W"
    assert sent.end(batch(1), Ending.TAKEN) == [batch(2), batch(3)]


def test_a_higher_epoch_begins_anew_and_a_lower_one_is_the_leaders_to_refuse() -> None:
    sent = Sent()
    sent.come(batch(5), batch(6))
    sent.end(batch(5), Ending.REPEATED)
    assert sent.come(batch(7)) == "R"
    assert sent.come(batch(0, epoch=1), batch(1, epoch=1), batch(8)) == "SWS"


def test_a_batch_whose_predecessor_went_over_another_connection_is_refused_once() -> None:
    sent = Sent()
    sent.come(batch(0), batch(1))
    sent.end(batch(0), Ending.REPEATED)
    assert sent.come(batch(7), under=NEW) == "R"
    assert sent.come(batch(7), batch(8), under=NEW) == "SW"
    sent.end(batch(7), Ending.REPEATED)
    assert sent.come(batch(9), batch(7), batch(8), batch(9), under=NEW) == "RSWW"


def test_sequences_go_around() -> None:
    sent = Sent()
    last = batch(2**31 - 2, count=2)
    sent.come(last, batch(0))
    sent.end(last, Ending.REPEATED)
    assert sent.come(batch(1), last, batch(0), batch(1)) == "RSWW"


def test_a_batch_that_could_not_be_sent_has_to_come_again() -> None:
    sent = Sent()
    sent.order.not_sent(PARTITION, batch(0, count=3))
    sent.order.not_sent(PARTITION, batch(3))
    assert sent.come(batch(4)) == "R"
    split = [batch(0), batch(1, count=2)]  # Java's producer sends a batch that was too large in parts
    assert sent.come(split[0], batch(5), split[1], batch(3)) == "SRWW"


def test_what_is_kept_is_bounded() -> None:
    sent = Sent(most_kept=3)
    for producer in range(10):
        sent.come(batch(0, producer=producer))
        if producer != 4:
            sent.end(batch(0, producer=producer), Ending.TAKEN)
    assert len(sent.order) == 3
    assert sent.come(batch(1, producer=4), batch(1, producer=9), batch(1, producer=0)) == "WSS"


def test_a_batch_says_its_numbers() -> None:
    one = encode_batch([b"a", b"b"], timestamps=1_000, producer_id=9, producer_epoch=3, base_sequence=2**31 - 1)
    assert numbered(read_header(one)) == Numbered(9, 3, 2**31 - 1, 1)
    assert numbered(read_header(encode_batch([b"a"], timestamps=1_000))) is None


class Cluster:
    """A producer that pipelines and repeats, the order of its connection, and leaders that come and go."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.order = ProducerOrder()
        self.epoch = 0
        self.log: list[int] = []
        self.not_acknowledged: deque[int] = deque(range(30))
        self.next = 0  # index of the first that is to be sent (again)
        self.on_its_way: deque[Turn] = deque()  # to the leaders, in order
        self.answers: dict[int, Ending] = {}

    def step(self) -> None:
        action = self.random.random()
        if action < 0.5:
            self.send()
        elif action < 0.9:
            self.serve(Ending.TAKEN if action < 0.75 else Ending.REPEATED)
        elif action < 0.95:
            self.epoch += 1
        else:
            self.resolve()

    def send(self) -> None:
        if self.next < min(5, len(self.not_acknowledged)):
            sequence = self.not_acknowledged[self.next]
            self.next += 1
            self.place(self.order.arrived(PARTITION, batch(sequence), (b"t", self.epoch)))

    def place(self, turn: Turn) -> None:
        if turn.verdict is Verdict.REFUSE:
            self.answers[turn.batch.first] = Ending.REPEATED
        elif turn.verdict is Verdict.SEND:
            self.on_its_way.append(turn)

    def serve(self, ending: Ending) -> None:
        """A leader takes the next batch, or it is lost on its way, or it comes too late, or behind a gap."""
        if not self.on_its_way:
            return
        turn = self.on_its_way.popleft()
        sequence = turn.batch.first
        if turn.leadership[1] != self.epoch:
            ending = Ending.REPEATED
        elif ending is Ending.TAKEN and sequence not in self.log:
            if self.log and sequence != self.log[-1] + 1:
                ending = Ending.REPEATED
            else:
                self.log.append(sequence)  # a leader that does not know the producer takes any
        self.answers[sequence] = ending
        decided = self.order.ended(turn, ending)
        for each in decided:
            self.place(each)
            following = self.order.begun(each) if each.verdict is Verdict.SEND else None
            decided += [] if following is None else [following]

    def resolve(self) -> None:
        """The client hears the answers: it goes on, or sends all again from the first that failed."""
        while self.next and (ending := self.answers.pop(self.not_acknowledged[0], None)) is not None:
            if ending is Ending.REPEATED:
                self.finish()
                self.answers.clear()
                self.next = 0
                return
            self.not_acknowledged.popleft()
            self.next -= 1

    def finish(self) -> None:
        while self.on_its_way:
            self.serve(Ending.TAKEN)


@pytest.mark.parametrize("seed", range(300))
def test_no_batch_passes_another_over_leaders_that_do_not_know_its_producer(seed: int) -> None:
    cluster = Cluster(Random(seed))
    for _ in range(5_000):
        cluster.step()
        assert cluster.log == list(range(len(cluster.log)))
        assert cluster.order.broken_invariants() == []
        if not cluster.not_acknowledged:
            break
    assert cluster.log == list(range(30))
