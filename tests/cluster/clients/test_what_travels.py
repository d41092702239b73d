"""Arguments of Ray's tasks: the handle of a cluster may be one, and a client may not."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import ray

import raylog

pytestmark = pytest.mark.cluster


@pytest.mark.timeout(180)
def test_a_task_takes_the_handle_and_refuses_a_client_with_a_sentence(cluster: raylog.Cluster) -> None:
    cluster.create_topic("travels")

    @ray.remote(num_cpus=0)
    def send(where: Any) -> int:
        with raylog.Producer(cluster=where) as mine:
            return mine.send("travels", b"value").result(timeout=30).offset

    assert ray.get(send.remote(cluster), timeout=60) == 0
    with raylog.Producer(cluster=cluster) as producer, raylog.Consumer("travels", cluster=cluster) as consumer:
        for client in (producer, consumer, raylog.AsyncProducer(), raylog.AsyncConsumer()):

            @ray.remote(num_cpus=0)
            def capture(client: object = client) -> str:
                return repr(client)

            sentence = f"This {type(client).__name__} belongs to the process that made it"
            with pytest.raises(TypeError) as refused:
                capture.remote()
            assert sentence in "".join(traceback.format_exception(refused.value))
            with pytest.raises(TypeError) as refused:
                send.remote(client)
            assert sentence in "".join(traceback.format_exception(refused.value))
