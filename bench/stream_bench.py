"""Streams between two processes of this machine: round trips, and how much goes through, beside a bare unix socket."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import uvloop

from bench.measuring import ROUNDS, Figure
from raylog.actors.kernel.stream_interface import Answer, Request, Response
from raylog.actors.machine.stream_connection import StreamConnection
from raylog.actors.machine.stream_server import StreamServer, connect
from raylog.actors.protocol.cluster_secrets import Key, Standing
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done
from raylog.config import KIB, MIB

_SECRET = os.urandom(32)
_SIZES = {"100 B": 100, "16 KiB": 16 * KIB, "1 MiB": MIB}
_ROUND_TRIPS = {100: 2_000, 16 * KIB: 1_000, MIB: 100}
_PIPELINED = {100: 20_000, 16 * KIB: 10_000, MIB: 800}
_WINDOW = {100: 64, 16 * KIB: 64, MIB: 8}  # requests in flight
# Goals of the design, for the unix socket: p50 in ms; small requests per second; MB/s in large ones.
_GOAL_P50_MS = 0.08
_GOAL_RATE = {100: 46_000.0, MIB: 3_000.0}


def run() -> Iterator[Figure]:
    folder = tempfile.mkdtemp(prefix="rl", dir="/tmp")
    try:
        for name, listen in (("unix", Endpoint(path=f"{folder}/s")), ("TCP", Endpoint(host="127.0.0.1"))):
            with _other_process(_serve, str(listen), _SECRET) as said:
                endpoint = Endpoint.parse(said.recv())
                yield from uvloop.run(_measure(name, endpoint))
    finally:
        shutil.rmtree(folder)


@contextmanager
def _other_process(target: object, *arguments: object) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)  # type: ignore[arg-type]
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _acknowledge(_request: Request) -> Answer:
    return Response(Done())


def _serve(tell: Connection, listen: str, secret: bytes) -> None:
    async def serve() -> None:
        keys = (Key(Standing.INTERNAL, secret),)
        server = await StreamServer.start(Endpoint.parse(listen), _acknowledge, keys=lambda: keys, role="bench")
        tell.send(str(server.endpoint))
        await asyncio.Event().wait()

    uvloop.run(serve())


def _bounce(tell: Connection, path: str, size: int) -> None:
    """The raw limit: a process that sends every message back as one byte."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        tell.send("ready")
        one, _ = listener.accept()
        buffer = bytearray(size)
        while one.recv_into(buffer, size, socket.MSG_WAITALL):
            one.sendall(b"x")


async def _measure(name: str, endpoint: Endpoint) -> list[Figure]:
    stream = await connect(endpoint, key=Key(Standing.INTERNAL, _SECRET), role="bench")
    figures = []
    try:
        for label, size in _SIZES.items():
            figures += await _round_trips(stream, f"{name}, {label}", size, name == "unix")
            figures.append(await _pipelined(stream, f"{name}, {label}", size, name == "unix"))
    finally:
        await stream.close()
    return figures


async def _round_trips(stream: StreamConnection, label: str, size: int, is_unix: bool) -> list[Figure]:
    payload = bytearray(size)
    count = _ROUND_TRIPS[size]
    folder = tempfile.mkdtemp(prefix="rl", dir="/tmp")
    p50, p99, bare = [], [], []
    try:
        with _other_process(_bounce, f"{folder}/s", size) as said, socket.socket(socket.AF_UNIX) as raw:
            said.recv()
            raw.connect(f"{folder}/s")
            for _ in range(ROUNDS + 1):  # the first warms up
                spent = [await _ask(stream, payload) for _ in range(count)]
                bare.append(statistics.median(_ask_bare(raw, payload) for _ in range(count)) * 1e3)
                p50.append(statistics.median(spent) * 1e3)
                p99.append(statistics.quantiles(spent, n=100)[98] * 1e3)
    finally:
        shutil.rmtree(folder)
    note = f"a bare unix ping-pong takes {statistics.median(bare[1:]):.3f}"
    goal = _GOAL_P50_MS if is_unix and size == 100 else None
    return [
        Figure(f"round trip, {label}, p50", p50[1:], "ms", goal, True, note),
        Figure(f"round trip, {label}, p99", p99[1:], "ms", None, True),
    ]


async def _ask(stream: StreamConnection, payload: bytearray) -> float:
    start = time.perf_counter()
    await stream.request(Done(), payload)
    return time.perf_counter() - start


def _ask_bare(raw: socket.socket, payload: bytearray) -> float:
    start = time.perf_counter()
    raw.sendall(payload)
    raw.recv(1)
    return time.perf_counter() - start


async def _pipelined(stream: StreamConnection, label: str, size: int, is_unix: bool) -> Figure:
    payload = bytearray(size)
    each = _PIPELINED[size] // _WINDOW[size]

    async def ask_many() -> None:
        for _ in range(each):
            await stream.request(Done(), payload)

    rates = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        await asyncio.gather(*(ask_many() for _ in range(_WINDOW[size])))
        rates.append(each * _WINDOW[size] / (time.perf_counter() - start))
    goal = _GOAL_RATE.get(size) if is_unix else None
    through = f"{statistics.median(rates[1:]) * size / 1e6:,.0f} MB/s, {_WINDOW[size]} in flight"
    if size == MIB:
        rates = [rate * size / 1e6 for rate in rates]
        return Figure(f"pipelined, {label}", rates[1:], "MB/s", goal, note=through)
    return Figure(f"pipelined, {label}", rates[1:], "requests/s", goal, note=through)
