"""Topic settings: Kafka's names, checked where they enter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.config import TOPIC_SETTINGS, ConfigValue, TopicConfig, readable
from raylog.errors import InvalidConfig, UnknownConfig


def test_defaults_are_kafkas() -> None:
    config = TopicConfig()
    assert config.segment_bytes == 1024**3
    assert config.segment_ms == config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.retention_bytes == -1
    assert config.max_message_bytes == 1_048_588
    assert config.index_interval_bytes == 4096
    assert config.cleanup_policy == "delete"


def test_values_may_be_text_as_kafka_users_write_them() -> None:
    config = TopicConfig.parse({"retention.ms": "86400000", "min.cleanable.dirty.ratio": "0.1"})
    assert config.retention_ms == 86_400_000
    assert config.min_cleanable_dirty_ratio == 0.1


@pytest.mark.parametrize(
    ("name", "written", "number", "shown"),
    [
        ("retention.ms", "7d", 604_800_000, "7d"),
        ("retention.ms", " 90 m ", 5_400_000, "90m"),
        ("retention.ms", "1500", 1500, "1500"),
        ("retention.ms", "1.5h", 5_400_000, "90m"),
        ("retention.ms", -1, -1, "-1"),
        ("segment.bytes", "512MiB", 2**29, "512MiB"),
        ("segment.bytes", "1000000", 1_000_000, "1000000"),
        ("retention.bytes", "2TiB", 2**41, "2TiB"),
        ("scrub.bytes.per.second", "20MiB", 20 * 2**20, "20MiB"),
        ("index.interval.bytes", 0, 0, "0"),
        ("min.insync.replicas", 2, 2, "2"),
        ("cleanup.policy", "compact", "compact", "compact"),
    ],
)
def test_times_and_sizes_are_written_and_shown_as_people_do(
    name: str, written: ConfigValue, number: ConfigValue, shown: str
) -> None:
    parsed = getattr(TopicConfig.parse({name: written}), name.replace(".", "_"))
    assert parsed == number
    assert readable(name, parsed) == shown


@pytest.mark.parametrize(
    ("name", "written"),
    [("retention.ms", "7x"), ("retention.ms", "7MiB"), ("retention.ms", "0.1ms"), ("segment.bytes", "1h"),
     ("flush.messages", "1h")],
)  # fmt: skip
def test_other_units_are_refused(name: str, written: str) -> None:
    with pytest.raises(InvalidConfig):
        TopicConfig.parse({name: written})


@pytest.mark.parametrize("written", ["compact,delete", "delete,compact", " delete , compact "])
def test_both_cleanup_policies_in_any_order(written: str) -> None:
    config = TopicConfig.parse({"cleanup.policy": written})
    assert config.is_compacted
    assert config.deletes_old_segments


def test_an_empty_cleanup_policy_keeps_everything() -> None:
    config = TopicConfig.parse({"cleanup.policy": " "})
    assert config.cleanup_policy == ""
    assert not config.is_compacted
    assert not config.deletes_old_segments
    assert TopicConfig.parse(config.overrides()) == config


def test_an_unknown_setting_names_the_one_that_was_meant() -> None:
    with pytest.raises(UnknownConfig) as raised:
        TopicConfig.parse({"retension.ms": 1})
    assert raised.value.suggestion == "retention.ms"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "soon"),
        ("retention.ms", -2),
        ("retention.ms", "1.5"),
        ("segment.bytes", 2**31),
        ("max.message.bytes", 2**26 + 1),
        ("segment.ms", 0),
        ("min.cleanable.dirty.ratio", 1.1),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "much"),
        ("cleanup.policy", "shred"),
        ("cleanup.policy", ",delete"),
        ("flush.policy", "sometimes"),
        ("message.timestamp.type", "createtime"),
        ("min.insync.replicas", -1),
        ("unclean.leader.election.enable", "yes"),
    ],
)
def test_an_impossible_value_is_refused_by_name(name: str, value: ConfigValue) -> None:
    with pytest.raises(InvalidConfig) as raised:
        TopicConfig.parse({name: value})
    assert raised.value.name == name
    assert name in str(raised.value)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"max\.compaction\.lag\.ms"):
        TopicConfig.parse({"min.compaction.lag.ms": 10, "max.compaction.lag.ms": 5})


def test_without_a_minimum_all_replicas_but_one_have_to_be_in_sync() -> None:
    assert [TopicConfig().min_insync(replicas) for replicas in (1, 2, 3, 5)] == [1, 1, 2, 4]
    assert TopicConfig.parse({"min.insync.replicas": "3"}).min_insync(2) == 3


@pytest.mark.parametrize("written", ["true", "TRUE", True])
def test_yes_and_no_are_written_as_in_kafka(written: ConfigValue) -> None:
    name = "unclean.leader.election.enable"
    config = TopicConfig.parse({name: written})
    assert config.unclean_leader_election_enable is True
    assert TopicConfig.parse(config.overrides()) == config
    assert config.with_changes({name: "false"}) == TopicConfig()


def test_a_setting_goes_back_to_its_default() -> None:
    config = TopicConfig.parse({"retention.ms": 5, "segment.ms": 6})
    assert config.with_changes({"retention.ms": None}) == TopicConfig.parse({"segment.ms": 6})
    with pytest.raises(UnknownConfig):
        config.with_changes({"retension.ms": None})


def test_every_setting_has_a_kafka_name_and_a_sentence() -> None:
    for setting in TOPIC_SETTINGS:
        assert setting.name == setting.name.lower()
        assert "." in setting.name or setting.name == "preallocate"  # Kafka's too
        assert setting.doc.endswith(".")


@given(
    retention=st.integers(-1, 2**63 - 1),
    policy=st.sampled_from(["delete", "compact", "compact,delete"]),
    ratio=st.floats(0, 1),
)
def test_overrides_make_the_same_configuration_again(retention: int, policy: str, ratio: float) -> None:
    config = TopicConfig.parse(
        {"retention.ms": retention, "cleanup.policy": policy, "min.cleanable.dirty.ratio": ratio}
    )
    assert TopicConfig.parse(config.overrides()) == config
