"""Interrupts in the middle of `send`: whatever they hit, nothing that was taken is lost, and nobody waits for ever."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from contextlib import suppress
from random import Random

import pytest

from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer
from tests.unit.api.producer_cluster import TOPIC, producer_of

_ROUNDS = 200


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which only the main thread gets."""


class Sending:
    """A thread that sends, and goes on when it is interrupted."""

    def __init__(self, producer: Producer, sizes: list[int]) -> None:
        self.taken: list[tuple[bytes, RecordFuture]] = []
        self.interrupts = 0
        self._number = 0
        self.is_over = False
        self._producer = producer
        self._sizes = sizes
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self.is_over:
            with suppress(Interrupt):  # one that comes while another is dealt with
                self._send_until_interrupted()

    def _send_until_interrupted(self) -> None:
        try:
            while not self.is_over:
                self._number += 1
                value = b"%d." % self._number + bytes(self._sizes[self._number % len(self._sizes)])
                self.taken.append((value, self._producer.send(TOPIC, value, partition=None if self._number % 3 else 0)))
        except Interrupt:
            self.interrupts += 1

    def interrupt(self) -> None:
        ident = ctypes.c_ulong(self.thread.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Interrupt))


@pytest.mark.parametrize("seed", range(3))
def test_interrupts_anywhere_in_send(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    # An interrupt may also hit a finalizer, or the end of the thread. Reports of that would be hit by the next one.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with producer_of(monkeypatch, 1, batch_size=4_000, buffer_memory=2**20) as (producer, link):
        producer.send(TOPIC, b"first").result(10)
        sending = Sending(producer, [10, 300] if seed else [10])
        for _ in range(_ROUNDS):
            until = time.monotonic() + random.random() * 0.002
            while time.monotonic() < until:
                pass
            sending.interrupt()
        sending.is_over = True
        sending.thread.join(10)
        producer.flush(30)
        log = link.values(0)
        offsets = [future.result(0).offset for _, future in sending.taken]
        assert sending.interrupts > 0
        assert [log[offset] for offset in offsets] == [value for value, _ in sending.taken]
        assert offsets == sorted(offsets)
        assert len(set(log)) == len(log)
        assert producer.send(TOPIC, b"last").result(10).offset == len(log)
