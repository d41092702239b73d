"""The process in which assignors run: `python -m raylog.groups.assignors.worker SECONDS` (`assignors/processes.py`).

    in      u32 size, msgpack [name, [[topic, partitions, [racks, …]], …],
            [[member, instance, rack, [topic at, …], [[topic at, partition], …]], …]]
    out     one zero byte when it is ready; then for each call u32 size,
            msgpack [True, [[[topic at, partition], …], …]], in the members' order, or [False, why not]

It knows nothing of the cluster but what a call says, and has no secret. What an assignor prints goes nowhere; whatever
it raises is the answer. A call that goes on for twice its time, as when the coordinator has died, ends the process.
"""

from __future__ import annotations

import os
import resource
import signal
import struct
import sys
from typing import Any, BinaryIO, Final

import msgpack

from raylog.errors import AssignorFailed, UnknownAssignor
from raylog.groups.assignors.assignment import Subscriber, TopicShape
from raylog.groups.assignors.calling import AssignorCall, Given, assign

SIZE: Final = struct.Struct(">I")
READY: Final = b"\0"
_MAX_MEMORY: Final = 4 << 30  # of addresses; libraries reserve far more than they use
_REASON: Final = 500  # characters


def main() -> None:
    seconds = float(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    answers.write(READY)
    answers.flush()
    while (call := _next_call(calls)) is not None:
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds)  # its signal ends the process
        packed: bytes = msgpack.packb(answer_to(call))
        signal.setitimer(signal.ITIMER_REAL, 0)
        answers.write(SIZE.pack(len(packed)) + packed)
        answers.flush()


def _next_call(calls: BinaryIO) -> AssignorCall | None:
    size = calls.read(SIZE.size)
    return call_of(calls.read(*SIZE.unpack(size))) if len(size) == SIZE.size else None


def packed_call(call: AssignorCall) -> bytes:
    names = sorted(call.topics)
    at = {name: number for number, name in enumerate(names)}
    shapes = [call.topics[name] for name in names]
    topics = [[name, each.partitions, list(map(sorted, each.racks))] for name, each in zip(names, shapes, strict=True)]
    members = [
        [
            each.member_id, each.instance_id, each.rack, [at[name] for name in each.topics if name in at],
            [[at[name], number] for name, number in each.owned if name in at],
        ]
        for each in call.subscribers
    ]  # fmt: skip
    packed: bytes = msgpack.packb([call.name, topics, members], unicode_errors="surrogatepass")
    return packed


def call_of(packed: bytes) -> AssignorCall:
    name, topics, members = msgpack.unpackb(packed, unicode_errors="surrogatepass")
    shapes = {topic: TopicShape(count, tuple(map(frozenset, racks))) for topic, count, racks in topics}
    names = list(shapes)
    subscribers = tuple(
        Subscriber(
            member, instance, rack, frozenset(names[at] for at in wanted),
            frozenset((names[at], number) for at, number in owned),
        )
        for member, instance, rack, wanted, owned in members
    )  # fmt: skip
    return AssignorCall(name, subscribers, shapes)


def answer_to(call: AssignorCall) -> list[Any]:
    try:
        return [True, _flat(assign(call.name, call.subscribers, call.topics), call)]
    except (AssignorFailed, UnknownAssignor) as error:
        reason = error.reason
    except BaseException as error:  # noqa: BLE001 (what it returned was no plain mapping either)
        reason = f"what it returned raised {type(error).__name__}: {error}"
    return [False, reason.encode(errors="replace")[:_REASON]]


def _flat(given: Given, call: AssignorCall) -> list[list[list[int]]]:
    at = {name: number for number, name in enumerate(sorted(call.topics))}
    return [
        sorted([at[name], number] for name, number in given[each.member_id]) for each in call.subscribers
    ]


if __name__ == "__main__":
    main()
