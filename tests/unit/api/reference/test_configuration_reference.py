"""docs/configuration.md says what the definitions say."""

from __future__ import annotations

import re
from pathlib import Path

from raylog.actors.cluster.cluster_settings import CLUSTER_SETTINGS
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.api.reference.configuration_reference import page
from raylog.config import TOPIC_SETTINGS

_PAGE = Path(__file__).parents[4] / "docs" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    assert _PAGE.read_text() == page(), "`make docs` writes it anew"


def test_it_has_an_entry_for_every_name_with_what_it_takes() -> None:
    entries = re.findall(r"^- \*\*`(.+?)`\*\*, (.+(?:\n  .+)*)", page(), re.MULTILINE)
    options = [option.name for kind in (ProducerOptions, ConsumerOptions) for option in kind.describe()]
    assert [name for name, _ in entries] == [*(each.name for each in TOPIC_SETTINGS), *CLUSTER_SETTINGS, *options]
    assert {name for name, text in entries if "Takes" not in text} == {"cluster"}
