"""A client's link to a cluster of real brokers and replicas: what it knows, how soon, and what its calls end in."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.link.cluster_link import ClusterLink, CoordinatorAddress, PartitionLeader, TopicView
from raylog.actors.protocol.control_messages import Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import NO_TOPIC, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import (
    LATEST,
    Append,
    Appended,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    ListOffsets,
)
from raylog.errors import (
    ClusterUnreachable,
    ControllerNotReady,
    NotLeader,
    OffsetOutOfRange,
    PeerNotAdmitted,
    PeerUnreachable,
    RequestTimedOut,
    StreamClosed,
    StreamNotOpen,
    UnknownTopic,
)
from raylog.storage.format.batch_codec import encode_batch
from tests.simulator.cluster.simulated_cluster import BrokerHome
from tests.simulator.world.fake_streams import FakeStream
from tests.unit.actors.link_world import TOPIC, LinkWorld, link_world

LATEST_OFFSET = ListOffset(LATEST, -1, False)


@pytest.fixture
def world() -> Iterator[LinkWorld]:
    with link_world() as world:
        yield world


def leader_of(world: LinkWorld, partition: int = 0) -> PartitionLeader:
    leader = world.link.leader(TOPIC, partition)
    assert leader is not None
    return leader


async def append(link: ClusterLink, leader: PartitionLeader, *values: bytes, timeout: float = 30.0) -> int:
    batch = encode_batch(list(values), timestamps=1_000)
    message = Append(leader.epoch, -1, 20_000)
    return (await link.ask(leader, message, batch, expect=Appended, timeout=timeout)).message.base_offset


# --- topics -------------------------------------------------------------------------------------------------------


def test_a_topic_is_found_with_the_leaders_of_all_its_partitions(world: LinkWorld) -> None:
    world.create_topic(partitions=4)
    view = world.do(world.link.find_topic(TOPIC, 5.0))
    assert [each.partition for each in view.partitions] == [0, 1, 2, 3]
    assert all(each.broker > 0 and each.endpoints and each.topic_id == view.topic_id for each in view.partitions)
    assert world.link.topic(TOPIC) == view
    assert world.link.leader(TOPIC, 3) == view.partitions[3]
    assert world.link.leader(TOPIC, 4) is None
    assert [each.name for each in world.do(world.link.list_topics(5.0))] == [TOPIC]


def test_a_topic_that_nobody_knows_is_an_error_after_a_moment(world: LinkWorld) -> None:
    began = world.world.now
    with pytest.raises(UnknownTopic, match="Create it"):
        world.do(world.link.find_topic("no-such-topic", 30.0))
    assert world.world.now - began < 2.0


def test_a_topic_that_is_created_a_moment_later_is_found(world: LinkWorld) -> None:
    finding = world.begin(world.link.find_topic(TOPIC, 30.0))
    world.world.run_for(0.3)
    assert not finding.done()
    controller = world.cluster.serving()
    assert controller is not None
    world.create_topic()
    assert finding.done()
    assert finding.result().name == TOPIC


def test_a_topic_that_is_made_anew_has_another_id(world: LinkWorld) -> None:
    world.create_topic()
    before = world.do(world.link.find_topic(TOPIC, 5.0))
    controller = world.cluster.serving()
    assert controller is not None
    deleting = world.cluster.controllers[-1].process.run(controller.admin.delete_topic(TOPIC))
    world.until(lambda: deleting.done() and world.link.topic(TOPIC) is None)
    world.create_topic()
    world.until(lambda: world.link.topic(TOPIC) is not None)
    after = world.link.topic(TOPIC)
    assert after is not None
    assert after.topic_id != before.topic_id


def test_what_brokers_know_is_told_and_learnt_and_unknown_names_are_not_kept(world: LinkWorld) -> None:
    world.create_topic(partitions=2)
    told = world.do(world.link.describe((TOPIC, "no-such-topic"), 5.0))
    ((name, _, partitions, *_),) = told.topics
    assert (name, len(partitions)) == (TOPIC, 2)
    assert sorted(partitions[0].isr) == [1, 2, 3]
    assert world.link.topic(TOPIC) is not None
    assert world.do(world.link.describe(("no-such-topic",), 5.0)).topics == ()
    assert world.link.topic(TOPIC) is not None
    world.do(world.link.follow_all(5.0))
    assert [each.name for each in world.do(world.link.describe((), 5.0)).topics] == [TOPIC]
    assert world.link._cache._versions.keys() == {TOPIC}


# --- where nobody answers -----------------------------------------------------------------------------------------


def test_where_no_broker_answers_the_cluster_is_unreachable() -> None:
    with link_world(bootstrap=[Endpoint(host="m-1", port=9), Endpoint(path="/run/nobody")]) as world:
        for call in (world.link.find_topic(TOPIC, 3.0), world.link.refresh(3.0), world.link.producer_id(3.0)):
            began = world.world.now
            with pytest.raises(ClusterUnreachable, match=r"tcp:m-1:9.*Check that"):
                world.do(call)
            assert 2.9 < world.world.now - began < 3.5


def test_calls_that_look_for_a_topic_at_once_share_a_question(
    world: LinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer names all partitions, and a fetcher for each of them begins in one moment."""
    world.create_topic(partitions=3)
    asked: list[Message] = []
    ask = world.link._questions.ask

    async def counted(message: Message, expect: type[Any], timeout: float) -> Any:
        asked.append(message)
        return await ask(message, expect, timeout)

    monkeypatch.setattr(world.link._questions, "ask", counted)

    async def find_all() -> list[TopicView]:
        return await asyncio.gather(*[world.link.find_topic(TOPIC, 5.0) for _ in range(100)])

    assert {view.name for view in world.do(find_all())} == {TOPIC}
    assert len(asked) == 1
    assert not world.link._finding


def test_who_waits_longer_than_others_for_a_topic_is_not_ended_with_them(world: LinkWorld) -> None:
    world.create_topic()
    brokers = [home.process for home in world.cluster.homes.values() if home.process is not None]
    for broker in brokers:
        broker.pause()
    short = world.begin(world.link.find_topic(TOPIC, 1.0))
    long = world.begin(world.link.find_topic(TOPIC, 30.0))
    world.until(short.done)
    with pytest.raises(ClusterUnreachable):
        short.result()
    assert not long.done()
    for broker in brokers:
        broker.resume()
    world.until(long.done)
    assert long.result().name == TOPIC


@pytest.mark.parametrize("is_old", [False, True])
def test_ends_of_many_logs_are_asked_together(
    world: LinkWorld, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    """And one by one where a process does not know such a question, or leads one of them no more."""
    partitions = 30
    world.create_topic(partitions=partitions)
    world.world.run_for(1.0)  # by then all leaders have heard that they lead
    view = world.do(world.link.find_topic(TOPIC, 5.0))
    asked: list[type[Message]] = []
    ask, ask_process = world.link.ask, world.link.ask_process

    async def counted(leader: PartitionLeader, message: Message, **settings: Any) -> Any:
        asked.append(type(message))
        return await ask(leader, message, **settings)

    async def counted_process(leader: PartitionLeader, message: Message, **settings: Any) -> Any:
        asked.append(type(message))
        if is_old:
            raise RequestTimedOut("it", 1)
        return await ask_process(leader, message, **settings)

    monkeypatch.setattr(world.link, "ask", counted)
    monkeypatch.setattr(world.link, "ask_process", counted_process)

    async def look() -> list[int]:
        questions = [world.link.offset_at(each, LATEST, False, 5.0) for each in view.partitions]
        return [found.offset for found in await asyncio.gather(*questions)]

    assert world.do(look()) == [0] * partitions
    together = asked.count(ListOffsets)
    assert 0 < together <= len({each.endpoints for each in view.partitions}) < partitions
    assert (asked.count(ListOffset) == partitions) if is_old else (asked.count(ListOffset) < 4 * 4)


def test_a_refresh_is_not_misled_by_the_next_one(world: LinkWorld) -> None:
    """Whoever waited first may begin another refresh before the others, who waited for the same one, go on."""

    async def refresh_often(link: ClusterLink) -> None:
        async def refresh(times: int) -> None:
            for _ in range(times):
                await link.refresh(5.0)

        await asyncio.gather(*(refresh(times) for times in (3, 1, 2, 1)))

    world.create_topic()
    world.do(refresh_often(world.link))


def test_a_refresh_hears_only_what_has_changed(world: LinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer asks for one after each refusal, so a thousand partitions that change leaders ask often."""
    world.create_topic(partitions=4)
    world.do(world.link.find_topic(TOPIC, 5.0))
    world.world.run_for(5.0)
    answers: list[Metadata] = []
    monkeypatch.setattr(world.link, "_learn", lambda answer, _: answers.append(answer))
    world.do(world.link.refresh(5.0))
    assert [(each.topics, each.since) for each in answers] == [((), answers[0].version)]


def test_a_refresh_that_nobody_waits_for_any_more_fails_in_silence() -> None:
    with link_world(bootstrap=[Endpoint(host="m-1", port=9)]) as world:
        for _ in range(2):  # Python tells of an error that nobody has seen when its task is let go of
            refreshing = world.begin(world.link.refresh(3.0))
            world.world.run_for(0.5)
            refreshing.cancel()
            world.world.run_for(5.0)


def test_brokers_that_are_all_stopped_are_unreachable_too(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    for home in world.cluster.homes.values():
        assert home.process is not None
        home.process.pause()
    with pytest.raises(ClusterUnreachable):
        world.do(world.link.find_topic("another", 3.0), 4.0)


def test_a_client_that_no_broker_admits_hears_so_soon(world: LinkWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(endpoint: Endpoint, role: str, handler: Handler) -> Stream:
        raise PeerNotAdmitted(str(endpoint), "the secret is another one")

    monkeypatch.setattr(world.link.env, "dial", refuse)
    began = world.world.now
    with pytest.raises(PeerNotAdmitted, match="secret of the same cluster"):
        world.do(world.link.find_topic(TOPIC, 30.0))
    assert world.world.now - began < 3.0


def test_brokers_that_have_all_moved_are_found_by_asking_somebody_else(world: LinkWorld) -> None:
    world.create_topic()
    asked: list[float] = []

    async def find_brokers() -> list[Endpoint]:
        asked.append(world.world.now)
        if len(asked) == 1:
            raise ControllerNotReady("It has just been started.")
        return world.cluster.broker_endpoints()

    async def find_topic() -> TopicView:
        link = ClusterLink(world.link.env, [Endpoint(host="m-1", port=9)], "", find_brokers)
        try:
            return await link.find_topic(TOPIC, 30.0)
        finally:
            await link.close()

    assert world.do(find_topic()).name == TOPIC
    assert len(asked) == 2
    assert asked[1] - asked[0] > 2.0


def test_one_broker_that_is_stopped_delays_nothing_for_long(world: LinkWorld) -> None:
    world.create_topic()
    stopped = world.home(1).process
    assert stopped is not None
    stopped.pause()
    for _ in range(6):  # whichever is asked first
        began = world.world.now
        world.do(world.link.list_topics(30.0))
        assert world.world.now - began < 0.4


# --- brokers that know less ---------------------------------------------------------------------------------------


def names(world: LinkWorld) -> tuple[str, ...]:
    return tuple(each.name for each in world.do(world.link.list_topics(5.0)))


def away_from_the_controller(world: LinkWorld) -> BrokerHome:
    return next(each for each in world.cluster.homes.values() if each.machine is not world.controllers_machine)


def test_a_broker_that_was_just_started_does_not_say_that_there_are_no_topics() -> None:
    with link_world(brokers=4) as world:
        world.create_topic()
        world.do(world.link.find_topic(TOPIC, 5.0))
        victim = away_from_the_controller(world).process
        assert victim is not None
        victim.kill()
        for _ in range(1000):
            assert names(world) == (TOPIC,)
            world.world.run_for(0.01)


def test_a_broker_without_news_from_the_controller_is_not_believed() -> None:
    """It still tells what it knew when it was cut off."""
    with link_world(brokers=4) as world:
        world.create_topic()
        world.do(world.link.find_topic(TOPIC, 5.0))
        world.world.network.partition([world.controllers_machine], [away_from_the_controller(world).machine])
        world.world.run_for(5.0)
        world.create_topic("later", replication=2)
        world.world.run_for(5.0)
        for _ in range(20):
            assert names(world) == (TOPIC, "later")


def test_what_only_brokers_that_know_less_can_tell_is_not_told() -> None:
    with link_world(brokers=2) as world:
        world.create_topic(replication=1)
        world.do(world.link.find_topic(TOPIC, 5.0))
        behind = away_from_the_controller(world)
        world.world.network.partition([world.controllers_machine], [behind.machine])
        world.world.run_for(5.0)
        world.link._cache.version = 1_000_000
        with pytest.raises(ClusterUnreachable, match="know less"):
            world.do(world.link.list_topics(3.0))
        with pytest.raises(ClusterUnreachable, match="know less"):
            world.do(world.link.find_topic("another", 3.0))


def test_a_client_that_has_just_begun_hears_several_brokers_before_it_believes_one() -> None:
    with link_world(brokers=4) as world:
        behind = away_from_the_controller(world)
        world.until(lambda: behind.broker is not None and behind.broker.is_caught_up)
        world.world.network.partition([world.controllers_machine], [behind.machine])
        world.world.run_for(5.0)
        world.create_topic(replication=2)

        async def list_topics(env: Environment, places: Sequence[Endpoint]) -> list[str]:
            link = ClusterLink(env, places)
            try:
                await link.hear_others()
                return [each.name for each in await link.list_topics(5.0)]
            finally:
                await link.close()

        for _ in range(8):  # whichever is asked first
            assert world.do(list_topics(world.link.env, world.cluster.broker_endpoints())) == [TOPIC]
        world.do(world.link.hear_others())
        began = world.world.now
        world.do(world.link.hear_others())  # it has followed the news since
        assert world.world.now - began < 0.01


# --- leaders ------------------------------------------------------------------------------------------------------


def test_a_leader_answers_and_its_errors_are_raised_as_they_are(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)
    assert world.do(append(world.link, leader, b"a", b"b")) == 0
    answer = world.do(world.link.ask(leader, LATEST_OFFSET, expect=ListedOffset, timeout=5.0)).message
    assert answer.offset == 2
    with pytest.raises(OffsetOutOfRange):
        world.do(world.link.ask(leader, Fetch(7, -1, -1, 1, 1000, 100, False, ""), expect=Fetched, timeout=5.0))


def test_a_leader_that_dies_while_it_admits_a_client_is_one_that_cannot_be_reached(
    world: LinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the secret is wrong, brokers tell: they have admitted this client."""
    world.create_topic()
    leader = world.do(world.link.find_topic(TOPIC, 5.0)).partitions[0]

    async def dies(endpoint: Endpoint, role: str, handler: Handler) -> Stream:
        raise PeerNotAdmitted(str(endpoint), "it ended the stream")

    monkeypatch.setattr(world.link.env, "dial", dies)
    with pytest.raises(PeerUnreachable, match="it ended the stream"):
        world.do(world.link.ask(leader, LATEST_OFFSET, expect=ListedOffset, timeout=5.0))


def test_requests_that_wait_for_a_stream_are_sent_in_their_order(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)
    asked = []

    async def ask_all() -> None:
        for number in range(30):
            asked.append(world.process.run(append(world.link, leader, b"%d" % number)))
            await world.link.changed(0.0002)

    world.do(ask_all())
    world.until(lambda: all(each.done() for each in asked))
    assert [each.result() for each in asked] == list(range(30))


def test_a_leader_that_dies_is_replaced_here_at_once(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)
    world.do(append(world.link, leader, b"a"))
    changes: list[float] = []
    unsubscribe = world.link.on_change(lambda: changes.append(world.world.now))
    question = Fetch(1, -1, -1, 1, 1000, 20_000, False, "")
    fetching = world.begin(world.link.ask(leader, question, expect=Fetched, timeout=30.0))
    world.world.run_for(0.1)
    world.replica_that_leads().process.kill()
    took = world.until(lambda: leader_of(world).epoch > leader.epoch and leader_of(world).broker > 0)
    assert took < 0.1
    world.until(fetching.done, 0.01)
    assert isinstance(fetching.exception(), (StreamClosed, RequestTimedOut))
    assert changes
    assert world.do(append(world.link, leader_of(world), b"b")) == 1
    unsubscribe()
    seen = len(changes)
    world.replica_that_leads().process.kill()
    world.world.run_for(5.0)
    assert len(changes) == seen


def test_what_a_leader_that_is_cut_off_was_asked_is_given_up_when_it_is_replaced(world: LinkWorld) -> None:
    world.create_topic(partitions=3)
    view = world.do(world.link.find_topic(TOPIC, 5.0))
    leader = next(each for each in view.partitions if world.home(each.broker).machine is not world.controllers_machine)
    world.do(append(world.link, leader, b"a"))
    cut_off = world.home(leader.broker).machine
    world.world.network.partition([cut_off], [each for each in world.world.machines if each is not cut_off])
    asking = world.begin(append(world.link, leader, b"b", timeout=60.0))
    took = world.until(asking.done)
    assert isinstance(asking.exception(), RequestTimedOut)
    assert took < 4.0
    assert leader_of(world, leader.partition).epoch > leader.epoch


def test_a_leader_that_is_known_to_be_replaced_is_not_asked(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)
    world.replica_that_leads().process.kill()
    world.until(lambda: leader_of(world).broker > 0 and leader_of(world).epoch > leader.epoch)
    with pytest.raises(StreamNotOpen, match="does not lead any more"):
        world.do(world.link.ask(leader, LATEST_OFFSET, expect=ListedOffset, timeout=5.0))


@pytest.mark.parametrize("broker", [1, 2, 3])
def test_news_come_although_one_broker_is_stopped(world: LinkWorld, broker: int) -> None:
    world.create_topic(partitions=3)
    world.do(world.link.find_topic(TOPIC, 5.0))
    world.world.run_for(1.0)
    leaders = [leader_of(world, number) for number in range(3)]
    stopped = world.home(broker).process
    assert stopped is not None
    stopped.pause(3.0)
    other = next(each for each in leaders if each.broker != broker)
    world.world.after(0.5, world.replica_that_leads(other.partition).process.kill)
    took = world.until(lambda: leader_of(world, other.partition).epoch > other.epoch)
    assert took < 1.0


def test_acks_0_needs_a_stream(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)

    async def say() -> None:
        world.link.say(leader, Append(leader.epoch, 0, 1_000), encode_batch([b"a"], timestamps=1))

    with pytest.raises(StreamNotOpen):
        world.do(say())
    world.do(world.link.connect(leader, 5.0))
    world.do(say())
    world.world.run_for(0.5)
    answer = world.do(world.link.ask(leader, LATEST_OFFSET, expect=ListedOffset, timeout=5.0)).message
    assert answer.offset == 1


def test_who_does_not_lead_says_so(world: LinkWorld) -> None:
    world.create_topic(partitions=2)
    view = world.do(world.link.find_topic(TOPIC, 5.0))
    one = view.partitions[0]
    controller = world.cluster.serving()
    assert controller is not None
    state = controller.reign.changes.state
    others = [each for each in state.partition(one.topic_id, 0).replicas if each != one.broker]
    endpoints = tuple(map(Endpoint.parse, state.replicas[ReplicaKey(one.topic_id, 0, others[0])].endpoints))
    wrong = PartitionLeader(TOPIC, one.topic_id, 0, others[0], one.epoch, endpoints, one.node_id)
    with pytest.raises(NotLeader):
        world.do(world.link.ask(wrong, LATEST_OFFSET, expect=ListedOffset, timeout=5.0))


def test_a_port_that_has_become_another_processs_is_not_taken_for_a_leaders(world: LinkWorld) -> None:
    world.create_topic()
    one = world.do(world.link.find_topic(TOPIC, 5.0)).partitions[0]
    brokers = tuple(world.cluster.broker_endpoints()[:1])
    wrong = PartitionLeader(TOPIC, one.topic_id, 0, one.broker, one.epoch, brokers, one.node_id)
    with pytest.raises(PeerUnreachable, match="no replica"):
        world.do(world.link.ask(wrong, LATEST_OFFSET, expect=ListedOffset, timeout=5.0))
    assert world.link._pool.open(wrong.endpoints) is None


def test_one_that_has_become_a_replicas_or_anothers_is_not_taken_for_a_coordinators(world: LinkWorld) -> None:
    world.create_topic()
    one = world.do(world.link.find_topic(TOPIC, 5.0)).partitions[0]
    wrong = CoordinatorAddress(OFFSETS_TOPIC, NO_TOPIC, 0, -1, 0, one.endpoints, one.node_id)
    world.link._cache._coordinators[OFFSETS_TOPIC, 0] = wrong
    with pytest.raises(PeerUnreachable, match="no replica or coordinator"):
        world.do(world.link.ask(wrong, LATEST_OFFSET, expect=ListedOffset, timeout=5.0))


# --- the rest -----------------------------------------------------------------------------------------------------


def test_producer_ids_differ(world: LinkWorld) -> None:
    given = [world.do(world.link.producer_id(5.0)) for _ in range(8)]
    assert len(set(given)) == 8


def test_closing_does_not_wait_for_itself_where_streams_take_a_moment_to_close(
    world: LinkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The questions that are open at brokers end first: one that asked again, at no stream, would ask for ever."""
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    close = FakeStream.close

    async def slowly(stream: FakeStream, timeout: float = 5.0) -> None:
        await close(stream, timeout)
        await asyncio.sleep(0.01)

    monkeypatch.setattr(FakeStream, "close", slowly)
    world.do(world.link.close(), 2.0)


def test_after_its_end_a_link_says_so(world: LinkWorld) -> None:
    world.create_topic()
    world.do(world.link.find_topic(TOPIC, 5.0))
    leader = leader_of(world)
    world.do(append(world.link, leader, b"a"))
    question = Fetch(1, -1, -1, 1, 1000, 20_000, False, "")
    fetching = world.begin(world.link.ask(leader, question, expect=Fetched, timeout=30.0))
    world.world.run_for(0.1)
    world.do(world.link.close())
    world.until(fetching.done, 1.0)
    assert isinstance(fetching.exception(), StreamClosed)
    for call in (world.link.refresh(3.0), world.link.find_topic("x", 1.0), world.link.changed(1.0)):
        with pytest.raises(StreamNotOpen, match="closed"):
            world.do(call)
    world.world.run_for(10.0)
