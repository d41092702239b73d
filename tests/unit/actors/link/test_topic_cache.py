"""What a client knows of topics moves forward only."""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicCache
from raylog.actors.protocol.control_messages import CoordinatorMetadata, Metadata, PartitionMetadata, TopicMetadata

ENDPOINTS = ("unix:/r/1", "tcp:host:1")
ID, OTHER_ID = b"1" * 16, b"2" * 16


def partition(number: int = 0, leader: int = 1, epoch: int = 0) -> PartitionMetadata:
    endpoints, node_id = (ENDPOINTS, "node-1") if leader >= 0 else ((), "")
    return PartitionMetadata(number, leader, epoch, (1, 2), (1, 2), endpoints, node_id)


def metadata(
    version: int, *partitions: PartitionMetadata, topic_id: bytes = ID, batch_format: str = "kafka"
) -> Metadata:
    topics = (TopicMetadata("t", topic_id, partitions, batch_format, 1_000),) if partitions else ()
    return Metadata(version, "cluster", topics, (), ())


def coordinators(version: int, *epochs: int) -> Metadata:
    """Of partitions 0 and on; a negative epoch: does not serve."""
    told = tuple(
        CoordinatorMetadata("__c", each, abs(epoch), ENDPOINTS if epoch >= 0 else (), "n")
        for each, epoch in enumerate(epochs)
    )
    return Metadata(version, "cluster", (), (), told)


def known(cache: TopicCache, number: int = 0) -> PartitionLeader:
    leader = cache.leader("t", number)
    assert leader is not None
    return leader


def test_a_broker_that_lags_behind_changes_nothing() -> None:
    cache = TopicCache("")
    assert cache.learn(metadata(9, partition(leader=2, epoch=4)), ["t"])
    assert not cache.learn(metadata(8, partition(leader=1, epoch=3)), ["t"])
    assert not cache.learn(metadata(9, partition(leader=2, epoch=4)), ["t"])
    assert not cache.learn(metadata(7), ["t"])
    assert (known(cache).broker, cache.version) == (2, 9)


def test_an_epoch_does_not_go_back_unless_the_topic_is_another_one() -> None:
    cache = TopicCache("")
    cache.learn(metadata(1, partition(leader=2, epoch=4)), ["t"])
    assert not cache.learn(metadata(2, partition(leader=1, epoch=3)), ["t"])
    assert known(cache).epoch == 4
    assert cache.learn(metadata(3, partition(leader=1, epoch=0), topic_id=OTHER_ID), ["t"])
    assert (known(cache).epoch, known(cache).topic_id) == (0, OTHER_ID)


def test_each_topic_has_a_version_of_its_own() -> None:
    cache = TopicCache("")
    cache.learn(metadata(9), ["other"])
    assert cache.learn(metadata(5, partition()), ["t"])


def test_what_is_deleted_is_forgotten_and_does_not_come_back_with_old_news() -> None:
    cache = TopicCache("")
    cache.learn(metadata(1, partition()), ["t"])
    leader = known(cache)
    assert not cache.is_outdated(leader)
    assert cache.learn(metadata(2), ["t"])
    assert cache.topic("t") is None
    assert cache.is_outdated(leader)
    assert not cache.learn(metadata(1, partition()), ["t"])
    assert cache.topic("t") is None


def test_partitions_may_become_more() -> None:
    cache = TopicCache("")
    cache.learn(metadata(1, partition(0, epoch=3)), ["t"])
    cache.learn(metadata(2, partition(1), partition(0, epoch=2)), ["t"])
    assert [known(cache, number).epoch for number in (0, 1)] == [3, 0]
    assert cache.leader("t", 2) is None
    assert cache.leader("t", -1) is None


def test_a_leader_is_outdated_by_a_higher_epoch_or_another_topic_of_its_name() -> None:
    cache = TopicCache("")
    cache.learn(metadata(1, partition(epoch=1)), ["t"])
    first = known(cache)
    cache.learn(metadata(2, partition(leader=-1, epoch=2)), ["t"])
    assert cache.is_outdated(first)
    assert known(cache).endpoints == ()
    cache.learn(metadata(3, partition(epoch=2), topic_id=OTHER_ID), ["t"])
    assert cache.is_outdated(first)
    assert not cache.is_outdated(PartitionLeader("unknown", ID, 0, 1, 1, (), ""))


def test_sockets_are_for_the_same_node() -> None:
    for node, expected in (("node-1", list(ENDPOINTS)), ("node-2", ["tcp:host:1"]), ("", list(ENDPOINTS))):
        cache = TopicCache(node)
        cache.learn(metadata(1, partition()), ["t"])
        assert [str(each) for each in known(cache).endpoints] == expected


def test_of_coordinators_the_newest_version_counts_as_a_whole() -> None:
    cache = TopicCache("")
    assert cache.learn(coordinators(3, 0, 0), [])
    before = cache.coordinator("__c", 0)
    assert before is not None
    assert not cache.is_outdated(before)
    assert cache.endpoints() == {before.endpoints}
    assert not cache.learn(coordinators(2, 7, 7), [])
    assert cache.learn(coordinators(4, -1, 0), [])
    after = cache.coordinator("__c", 0)
    assert after is not None
    assert after.endpoints == ()
    assert cache.is_outdated(before)
    assert cache.coordinator("__c", 5) is None


def test_who_knows_all_topics_hears_of_those_that_are_gone() -> None:
    cache = TopicCache("")
    assert cache.learn_all(metadata(3, partition()))
    assert [each.name for each in cache.topics()] == ["t"]
    assert not cache.learn_all(metadata(2)), "an older answer"
    assert not cache.learn_all(metadata(4, partition()))
    assert cache.learn_all(metadata(5))
    assert (list(cache.topics()), cache.complete_version) == ([], 5)


def test_an_answer_about_some_topics_says_nothing_of_the_others() -> None:
    cache = TopicCache("")
    cache.learn_all(metadata(3, partition()))
    cache.learn(metadata(7), ["other"])
    assert ([each.name for each in cache.topics()], cache.complete_version) == (["t"], 3)


def part(
    version: int, since: int, *partitions: PartitionMetadata, gone: tuple[str, ...] = (), batch_format: str = "kafka"
) -> Metadata:
    """Return an answer that leaves out what has not changed since."""
    whole = metadata(version, *partitions, batch_format=batch_format)
    return replace(whole, since=since, gone=gone)


def test_a_part_replaces_only_the_partitions_that_have_changed() -> None:
    cache = TopicCache("")
    cache.learn(metadata(5, partition(0), partition(1)), ["t"])
    assert cache.learn(part(7, 5, partition(1, leader=2, epoch=1)), ["t"])
    assert [known(cache, number).broker for number in (0, 1)] == [1, 2]
    assert cache.version_of(["t"]) == 7
    assert not cache.learn(part(8, 7), ["t"])
    assert cache.version_of(["t"]) == 8
    assert cache.learn(part(9, 8, partition(2)), ["t"])
    assert known(cache, 2).partition == 2


def test_a_part_that_goes_on_from_something_newer_changes_nothing() -> None:
    cache = TopicCache("")
    cache.learn(metadata(5, partition(0), partition(1)), ["t"])
    assert not cache.learn(part(9, 6, partition(1, leader=2, epoch=1)), ["t"])
    assert cache.version_of(["t"]) == 5
    assert not TopicCache("").learn(part(9, 6, partition(0)), ["t"])


def test_a_part_tells_which_topics_are_gone() -> None:
    cache = TopicCache("")
    cache.learn_all(metadata(5, partition(0)))
    assert cache.learn_all(part(6, 5, gone=("t",)))
    assert cache.topic("t") is None
    assert cache.complete_version == 6


def test_a_new_topic_comes_with_a_part() -> None:
    cache = TopicCache("")
    cache.learn_all(metadata(5))
    assert cache.learn_all(part(6, 5, partition(0), partition(1)))
    assert known(cache, 1).partition == 1


def test_an_epoch_does_not_go_back_with_a_part() -> None:
    cache = TopicCache("")
    cache.learn(metadata(1, partition(leader=2, epoch=4)), ["t"])
    assert not cache.learn(part(2, 1, partition(leader=1, epoch=3)), ["t"])
    assert known(cache).epoch == 4


def test_that_a_topic_does_not_exist_is_known_from_all_topics() -> None:
    cache = TopicCache("")
    cache.learn_all(metadata(5))
    assert not cache.learn(metadata(4, partition()), ["t"])
    assert cache.topic("t") is None


def test_settings_of_writers_are_learnt_with_the_whole_and_with_a_part() -> None:
    cache = TopicCache("")
    cache.learn(metadata(5, partition(0), partition(1)), ["t"])
    assert cache.learn(metadata(6, partition(0), partition(1), batch_format="columns"), ["t"])
    assert not cache.learn(metadata(5, partition(0), partition(1)), ["t"])
    view = cache.topic("t")
    assert view is not None
    assert (view.batch_format, view.max_batch_bytes) == ("columns", 1_000)
    assert cache.learn(part(7, 6, partition(0), partition(1), batch_format="as-produced"), ["t"])
    view = cache.topic("t")
    assert view is not None
    assert (view.batch_format, len(view.partitions)) == ("as-produced", 2)
