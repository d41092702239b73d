"""docs/configuration.md, made of the definitions themselves: `make docs` writes it.

What stands behind "Takes" is what each check says when it refuses something.
"""

from __future__ import annotations

import math
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Final

from raylog.actors.cluster.cluster_settings import CLUSTER_SETTINGS, alter_cluster_settings
from raylog.actors.cluster.state import ClusterState
from raylog.api.connection.client_options import ClientOptions
from raylog.api.connection.option_help import in_units
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.config import INT32_MAX, INT64_MAX, TOPIC_SETTINGS, TopicConfig
from raylog.errors import InvalidConfig

_HEAD: Final = """\
# Configuration

Made by `make docs` from the definitions in `raylog/config.py` and `api/*_options.py`; a test holds it against them.
Names and defaults are Kafka's wherever Kafka has them. A name that does not exist is refused, and the nearest one is
named.

What is not here: where brokers keep their data (`raylog.start`, the variable `RAYLOG_DATA_DIR`) stands in
[operations.md](operations.md), options of the Spark source and sink in [spark.md](spark.md).
"""
_TOPICS: Final = """
## Topics

For `Cluster.create_topic(…, config={…})` and `alter_topic_config`, or `raylog topic create -c name=value`.
Changes count at once.
"""
_CLUSTER: Final = """
## Cluster

For `Cluster.alter_cluster_config({…})`, or `raylog cluster config -c name=value`.
Coordinators of groups begin anew when `group.assignors` changes.
"""
_PRODUCERS: Final = """
## Producers

Keywords of `raylog.Producer` and `AsyncProducer`.
"""
_CONSUMERS: Final = """
## Consumers

Keywords of `raylog.Consumer` and `AsyncConsumer`.
"""
_ANYTHING: Final = "–"
_WIDTH: Final = 120
_NAMED: Final = {
    INT64_MAX: "2⁶³−1",
    INT32_MAX: "2³¹−1",
    2**40: "2⁴⁰",
    math.inf: "no end",
}


def page() -> str:
    topics, cluster = _entries(_topic_rows()), _entries(_cluster_rows())
    parts = [_HEAD, _TOPICS, *topics, _CLUSTER, *cluster, _PRODUCERS, *_entries(_option_rows(ProducerOptions))]
    return "".join([*parts, _CONSUMERS, *_entries(_option_rows(ConsumerOptions))])


def _entries(rows: Iterator[tuple[str, str, str, str]]) -> Iterator[str]:
    yield "\n"
    for name, default, takes, doc in rows:
        allowed = "" if takes == _ANYTHING else f" Takes {takes}."
        text = f"- **`{name}`**, default {default}. {doc}{allowed}"
        yield textwrap.fill(text, _WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False) + "\n"


def _topic_rows() -> Iterator[tuple[str, str, str, str]]:
    defaults = {field.metadata["setting"].name: field.default for field in fields(TopicConfig)}
    for setting in TOPIC_SETTINGS:
        refused = _expected(lambda setting=setting: setting.read(setting.name, object()))  # type: ignore[misc]
        yield setting.name, _value(setting.name, defaults[setting.name]), refused, setting.doc


def _cluster_rows() -> Iterator[tuple[str, str, str, str]]:
    for name, doc in CLUSTER_SETTINGS.items():
        refused = _expected(lambda name=name: alter_cluster_settings(ClusterState(), {name: "?"}))  # type: ignore[misc]
        yield name, _value(name, ""), refused, doc


def _option_rows(kind: type[ClientOptions]) -> Iterator[tuple[str, str, str, str]]:
    for each in kind.describe():
        refused = _expected(lambda each=each: each.check(each.name, object()))  # type: ignore[misc]
        yield each.name, _value(each.name, each.default), refused, each.doc


def _expected(check: Callable[[], object]) -> str:
    """Return what a check says that it takes, of something that it does not take."""
    try:
        check()
    except InvalidConfig as refused:
        text = str(refused.expected)
        for number, name in _NAMED.items():
            text = text.replace(str(number), name).replace(f"{number:g}", name)
        return text
    return _ANYTHING


def _value(name: str, value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"`{value}`{in_units(name, value)}" if value not in _NAMED else _NAMED[value]
    if value in ((), ""):
        return "none"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
