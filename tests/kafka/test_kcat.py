"""kcat, as Debian has it (librdkafka 2.0.2): lists, writes with each compression, reads, takes part in a group."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import raylog

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="there is no kcat in the path"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_SECONDS = 30.0


def kcat(bootstrap: str, *arguments: str, given: str = "") -> str:
    command = ["kcat", "-b", bootstrap, *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_writes_and_reads(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "through-kcat"
    cluster.create_topic(topic, partitions=2)
    listed = kcat(bootstrap, "-L", "-t", topic)
    assert " 3 brokers:" in listed
    assert f'topic "{topic}" with 2 partitions' in listed
    lines = [f"{codec}-{number}" for codec in CODECS for number in range(200)]
    for codec in CODECS:
        given = "".join(f"{line}\n" for line in lines if line.startswith(codec))
        kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, given=given)
    assert kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q").splitlines() == lines
    with raylog.Consumer(topic, auto_offset_reset="earliest") as consumer:
        found: list[str] = []
        while len(found) < len(lines):
            found += [each.value.decode() for some in consumer.poll(timeout_ms=5_000).values() for each in some]
    assert found == lines
    read = kcat(bootstrap, "-G", "kcats", "-c", str(len(lines)), "-X", "auto.offset.reset=earliest", "-q", topic)
    assert read.splitlines() == lines
    assert kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1") == f"{topic} [0] offset {len(lines)}\n"
