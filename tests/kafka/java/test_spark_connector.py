"""Spark's own connector for Kafka (spark-sql-kafka-0-10) writes a topic and reads it, as a batch and as a stream."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import raylog
from bench.kafka_peer.jars import JarSet
from tests.kafka.java.conftest import jars_of

pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

CONNECTOR: Final = JarSet(
    f"spark-kafka-{pyspark.__version__}", (f"org.apache.spark:spark-sql-kafka-0-10_2.12:{pyspark.__version__}",)
)
_SECONDS: Final = 150.0
_PROGRAM: Final = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic, jars, folder = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "1").getOrCreate()
)
options = {"kafka.bootstrap.servers": bootstrap}
rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "CONCAT('value ', id) AS value")
rows.write.format("kafka").options(**options).option("topic", topic).save()
read = {**options, "subscribe": topic, "startingOffsets": "earliest"}
found = spark.read.format("kafka").options(**read).load()
keys = sorted(int(row.key) for row in found.selectExpr("CAST(key AS STRING) AS key").collect())
assert keys == list(range(1000)), len(keys)
stream = spark.readStream.format("kafka").options(**read).load().selectExpr("CAST(value AS STRING) AS value")
query = (
    stream.writeStream.format("parquet").option("path", folder + "/out").option("checkpointLocation", folder + "/at")
    .trigger(availableNow=True).start()
)
assert query.awaitTermination(100)
assert sorted(row.value for row in spark.read.parquet(folder + "/out").collect()) == sorted(
    f"value {number}" for number in range(1000)
)
print("all of it")
spark.stop()
"""


def test_spark_writes_and_reads_with_its_own_connector(
    cluster: raylog.Cluster, bootstrap: str, tmp_path: Path
) -> None:
    has = {each.name for each in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    jars = ",".join(str(each) for each in sorted(jars_of(CONNECTOR).glob("*.jar")) if each.name not in has)
    cluster.create_topic("by-spark", 2, 3)
    command = [sys.executable, "-c", _PROGRAM, bootstrap, "by-spark", jars, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.stdout.endswith("all of it\n"), done.stderr[-4_000:]
    assert sum(each.high_watermark for each in cluster.describe_topic("by-spark").partitions) == 1000
