"""The guide to Spark, typed as it stands. Its program runs in this process, with this process's Spark."""

from __future__ import annotations

import contextlib
import io
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster
from tests.cluster.support.guide_run import GUIDES, GuideRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


class _RunHere(GuideRun):
    """Runs the programs of a guide in this process, since another Spark takes long to start."""

    def run(self, commands: str) -> str:
        return "".join(map(self._line, commands.splitlines()))

    def _line(self, line: str) -> str:
        command, _, program = line.partition(" ")
        if command != "python":
            return super().run(line)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(str(self.folder / program), run_name="__main__")
        return printed.getvalue()


def test_a_word_count(cluster: Cluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_bridge, "session", lambda *_, **__: spark)
    monkeypatch.setattr(spark_bridge, "stop", lambda _: None)
    _RunHere(tmp_path, {}).type((GUIDES / "spark_word_count.md").read_text())
