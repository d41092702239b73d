"""By which of Spark's ways the files of a checkpoint are written, with a session that is not real."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raylog.spark_bridge.reading.checkpoint_files import BY_FILE_SYSTEM, SETTING, choose_file_manager


class Settings(dict[str, str]):
    def set(self, name: str, value: str) -> None:
        self[name] = value

    def unset(self, name: str) -> None:
        del self[name]


def spark_with(settings: Settings) -> Any:
    def path(text: str) -> Any:
        uri = SimpleNamespace(getScheme=lambda: text.partition(":")[0])
        return SimpleNamespace(getFileSystem=lambda _: SimpleNamespace(getUri=lambda: uri))

    apache = SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=path)))
    session = SimpleNamespace(sessionState=lambda: SimpleNamespace(newHadoopConf=dict))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache))
    return SimpleNamespace(conf=settings, _jvm=jvm, _jsparkSession=session)


@pytest.mark.parametrize("before", [None, "of.the.Caller"])
def test_a_disk_has_its_own_way_and_the_caller_is_obeyed(before: str | None) -> None:
    settings = Settings({} if before is None else {SETTING: before})
    spark = spark_with(settings)
    choose_file_manager(spark, "file:/one")
    assert settings[SETTING] == (before or BY_FILE_SYSTEM)
    choose_file_manager(spark, "hdfs://two")
    assert settings.get(SETTING) == before
    choose_file_manager(spark, "file:/three")
    assert settings[SETTING] == (before or BY_FILE_SYSTEM)
