"""Assignors in processes of their own, one for each name: a shell, for coordinators on a real machine (rule 34).

    not started ──first call──► starting ──ready──► idle ◄──call, answer──► busy ──too late, too much, gone──► killed

What must stay true:
- A call ends within its time, counted from when it has its process: then the process is killed, by its own handle.
- The process has no secret of the cluster: nothing of this process's memory, files or environment goes along but
  `PATH` and where modules are found. It is no jail: it runs as the same user, on the same disk.
- What comes from it is believed in nothing: its size is bounded, its shape looked at, and what it gives checked again.
- Calls of one assignor wait for each other; those of another name do not, so a slow one delays its own groups only.

raylog's own assignors run in this process, on a thread, where they have little to do: a process costs 0.1 s and 15 MB.
"""

from __future__ import annotations

import asyncio
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Final

import msgpack

from raylog.errors import AssignorFailed
from raylog.groups.assignors.assignment import TopicPartition, check_assignment
from raylog.groups.assignors.calling import AssignorCall, AssignorsBesideLoop, Given, OffLoop, check_assignor, is_ours
from raylog.groups.assignors.worker import READY, SIZE, packed_call

_START_SECONDS: Final = 30.0
_MAX_ANSWER: Final = 32 << 20
_CHUNK: Final = 1 << 16
_SMALL: Final = 10_000  # members × partitions: some milliseconds at most


class AssignorProcesses:
    """`Assignors` of a coordinator. `allowed`: foreign ones."""

    def __init__(self, off_loop: OffLoop, allowed: Collection[str], seconds: float = 5.0) -> None:
        self._here = AssignorsBesideLoop(off_loop)
        self._allowed = frozenset(allowed)
        self._seconds = seconds
        self._processes: dict[str, tuple[AssignorProcess, ThreadPoolExecutor]] = {}

    def run(self, call: AssignorCall) -> Awaitable[Given]:
        check_assignor(call.name, self._allowed)
        if is_ours(call.name) and len(call.subscribers) * _partitions(call) <= _SMALL:
            return self._here.run(call)
        if call.name not in self._processes:
            threads = ThreadPoolExecutor(1, thread_name_prefix="assignor")
            self._processes[call.name] = AssignorProcess(self._seconds), threads
        process, threads = self._processes[call.name]
        return asyncio.get_running_loop().run_in_executor(threads, process.call, call)

    def close(self) -> None:
        for process, threads in self._processes.values():
            process.close()
            threads.shutdown(wait=False, cancel_futures=True)


def _partitions(call: AssignorCall) -> int:
    return sum(shape.partitions for shape in call.topics.values())


class AssignorProcess:
    """One process, started when it is first called. `call` waits, and is made from one thread at a time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # of starting and ending it
        self._calling = threading.Lock()  # whoever calls also tidies up
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def call(self, call: AssignorCall) -> Given:
        """Raises AssignorFailed."""
        with self._calling:
            try:
                process = self._started(call.name)
                answer = self._exchange(process, call)
            except BaseException:
                self._end()  # it may be in the middle of something, and nobody will listen to that
                raise
        return check_assignment(call.name, _given(call, answer), call.subscribers, call.topics)

    def close(self) -> None:
        """End the process, from any thread; a call that is under way fails."""
        with self._lock:
            self._is_closed = True
            if self._process is not None:
                self._process.kill()
        if self._calling.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._calling.release()

    def _started(self, name: str) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise AssignorFailed(name, "its coordinator has ended")
            if self._process is not None and self._process.poll() is None:
                return self._process
            self._reap()
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "raylog.groups.assignors.worker", str(self._seconds)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                env=_environment(), bufsize=0,
            )  # fmt: skip
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(_pipe(pipe).fileno(), False)
        deadline = time.monotonic() + _START_SECONDS
        if _read(process, 1, deadline, name, f"its process did not start within {_START_SECONDS:g} s") != READY:
            raise AssignorFailed(name, "its process said something else than that it was ready")
        return process

    def _exchange(self, process: subprocess.Popen[bytes], call: AssignorCall) -> bytes:
        deadline = time.monotonic() + self._seconds
        late = f"it took more than {self._seconds:g} s"
        packed = packed_call(call)
        _write(process, SIZE.pack(len(packed)) + packed, deadline, call.name, late)
        (size,) = SIZE.unpack(_read(process, SIZE.size, deadline, call.name, late))
        if size > _MAX_ANSWER:
            raise AssignorFailed(call.name, f"it answered with {size} bytes; {_MAX_ANSWER} are the most")
        return _read(process, size, deadline, call.name, late)

    def _end(self) -> None:
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._reap()

    def _reap(self) -> None:
        if self._process is not None:
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                _pipe(pipe).close()
            self._process = None


def _environment() -> dict[str, str]:
    """Modules are found where this process finds them."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "LANG": "C.UTF-8",
    }


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _write(process: subprocess.Popen[bytes], data: bytes, deadline: float, name: str, late: str) -> None:
    pipe, left = _pipe(process.stdin).fileno(), memoryview(data)
    while left:
        _wait(pipe, select.POLLOUT, deadline, name, late)
        try:
            left = left[os.write(pipe, left[:_CHUNK]) :]
        except BlockingIOError:
            continue
        except BrokenPipeError:
            raise _gone(process, name) from None


def _read(process: subprocess.Popen[bytes], size: int, deadline: float, name: str, late: str) -> bytes:
    pipe, data = _pipe(process.stdout).fileno(), bytearray()
    while len(data) < size:
        _wait(pipe, select.POLLIN, deadline, name, late)
        try:
            part = os.read(pipe, min(size - len(data), _CHUNK))
        except BlockingIOError:
            continue
        if not part:
            raise _gone(process, name)
        data += part
    return bytes(data)


def _wait(pipe: int, event: int, deadline: float, name: str, late: str) -> None:
    poll = select.poll()
    poll.register(pipe, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise AssignorFailed(name, late)


def _gone(process: subprocess.Popen[bytes], name: str) -> AssignorFailed:
    try:
        code: object = process.wait(1.0)
    except subprocess.TimeoutExpired:
        code = "unknown yet"
    return AssignorFailed(name, f"its process ended in the middle of it (exit status {code})")


def _given(call: AssignorCall, answer: bytes) -> Given:
    """Raises AssignorFailed, also where the answer makes no sense: foreign code may have written it."""
    names = sorted(call.topics)
    try:
        done, content = msgpack.unpackb(answer)
        if done is False and isinstance(content, bytes):
            raise AssignorFailed(call.name, content.decode(errors="replace"))
        members = zip(call.subscribers, content, strict=True)
        return {each.member_id: frozenset(_partition(names, *pair) for pair in pairs) for each, pairs in members}
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise AssignorFailed(call.name, f"its process answered what makes no sense ({error})") from error


def _partition(names: list[str], at: int, number: int) -> TopicPartition:
    if at < 0:
        raise IndexError(at)
    return names[at], number
