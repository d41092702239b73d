"""Ctrl-C, which is what a notebook's kernel gets to interrupt a cell: it ends every wait of a program at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from select import select

import pytest
import ray

import raylog
from raylog.actors.protocol.actor_names import CONTROLLER, namespace

pytestmark = pytest.mark.cluster

_PROMPTLY = 2.0
_WAITS = ("poll", "iterate", "flush", "result", "send_many", "list_topics", "create_topic", "close", "go on")
# A kernel runs cells within a turn of its event loop, and this program does too.
_PROGRAM = """
import asyncio, sys, time
import raylog

def interrupted(what, wait):
    print("waits", what, flush=True)
    try:
        wait()
    except KeyboardInterrupt:
        print("ended", what, flush=True)
    else:
        print("came to an end by itself:", what, flush=True)

async def cells():
    cluster = raylog.connect()
    producer = raylog.Producer(linger_ms=0)
    consumer = raylog.Consumer("interrupted", auto_offset_reset="earliest")
    producer.send("interrupted", b"before").result(timeout=60)
    assert consumer.poll(timeout_ms=60_000)
    print("ready", flush=True)
    sys.stdin.readline()
    interrupted("poll", lambda: consumer.poll(timeout_ms=60_000))
    interrupted("iterate", lambda: next(consumer))
    sent = producer.send("interrupted", b"lost")
    interrupted("flush", producer.flush)
    interrupted("result", lambda: sent.result(timeout=60))
    interrupted("send_many", lambda: producer.send_many("interrupted", [b"lost"] * 9).result(timeout=60))
    interrupted("list_topics", cluster.list_topics)
    interrupted("create_topic", lambda: cluster.create_topic("never"))
    interrupted("close", producer.close)
    interrupted("go on", lambda: time.sleep(60))
    consumer.close()

asyncio.new_event_loop().run_until_complete(cells())
print("over", flush=True)
"""


@pytest.mark.timeout(120)
def test_an_interrupt_ends_every_wait_at_once(cluster: raylog.Cluster) -> None:
    cluster.create_topic("interrupted", replication_factor=1)
    (replica,) = cluster.describe_replicas("interrupted")
    actor = ray.get_actor(CONTROLLER, namespace=namespace(cluster.name))
    controller = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0)
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as program:
        try:
            assert _line(program, 60) == "ready\n"
            os.kill(controller, signal.SIGSTOP)
            os.kill(replica.pid, signal.SIGKILL)  # and nobody makes another
            assert program.stdin is not None
            program.stdin.write(b"begin\n")
            for what in _WAITS:
                assert _line(program, 10) == f"waits {what}\n"
                time.sleep(0.5)
                program.send_signal(signal.SIGINT)
                assert _line(program, _PROMPTLY) == f"ended {what}\n"
            assert _line(program, 20) == "over\n"
        finally:
            os.kill(controller, signal.SIGCONT)
            program.kill()


def _line(program: subprocess.Popen[bytes], seconds: float) -> str:
    """Return the next line that it prints within that time. Its stdout is not buffered here: `select` sees all."""
    assert program.stdout is not None
    assert select([program.stdout], [], [], seconds)[0], "it prints nothing"
    return program.stdout.readline().decode()
