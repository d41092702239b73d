"""Kafka's jars, fetched once into `.jars/`, and the programs in them."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bench.kafka_peer.jars import JARS, KAFKA, JarSet, fetched_jars
from bench.kafka_peer.programs import JavaPrograms
from raylog.actors.on_ray.runtime.java_runtime import java_of_path, major_version

_OLDEST: Final = 17


def jars_of(wanted: JarSet) -> Path:
    """The folder of these jars; the test is skipped, with a sentence, where they cannot be had."""
    java = java_of_path(os.environ)
    version = None if java is None else major_version(java)
    if version is None or version < _OLDEST:
        pytest.skip(f"Kafka's tools need Java {_OLDEST} or newer in the path, and there is {version or 'none'}.")
    if shutil.which("mvn") is None and not (JARS / wanted.folder).is_dir():
        pytest.skip("There is no mvn in the path that could fetch Kafka's jars.")
    return fetched_jars(JARS, wanted)


@pytest.fixture(scope="module")
def programs(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaPrograms]:
    """Kafka's tools, told of all gateways. What a test leaves running is killed when its module is over."""
    running = JavaPrograms(jars_of(KAFKA), bootstrap, tmp_path_factory.mktemp("java"))
    yield running
    running.close()


@pytest.fixture
def unused_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
