"""The process of `heartbeat_bench.py` that is 1,000 members of 100 groups, all of them one coordinator's.

    python -m bench.heartbeat_members PID ACCESS

They share a few streams. First each has a heartbeat under way all the time, which the coordinator holds for as long as
it may: as real members do. Then each asks once in that time and is answered at once, so that its way there and back can
be measured. PID is the coordinator's: what processor time it takes is read beside that. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, cycle, islice
from pathlib import Path
from typing import Final

import uvloop

from bench.group_members import Member
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.tls import RayTls
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.api.connection.client_access import link_address
from raylog.api.connection.client_runtime import ClientEnvironment
from raylog.groups.records.messages import GroupHeartbeatAnswer
from raylog.storage.format.murmur2 import murmur2

TOPIC: Final = "beating"
GROUPS: Final = 100
MEMBERS: Final = 10  # of each group
INTERVAL_SECONDS: Final = 3.0
PARTITION: Final = 0  # of the offsets topic: whose coordinator it is
_STREAMS: Final = 4
_INTERVALS: Final = 2  # that are measured
_FIND_SECONDS: Final = 30.0
_SETTLE_WAIT_MS: Final = 300

_Ask = Callable[[Message, float], Awaitable[Message]]
_Beats = Awaitable[list[float]]


def _names(partitions: int) -> Iterator[str]:
    """Groups of that coordinator."""
    names = (f"g{number}" for number in count())
    mine = (each for each in names if (murmur2(each.encode()) & 0x7FFFFFFF) % partitions == PARTITION)
    return islice(mine, GROUPS)


@asynccontextmanager
async def _asking(access: ClusterAccess) -> AsyncIterator[tuple[list[_Ask], int]]:
    """Ways to ask the coordinator, each over a stream of its own; and how many coordinators there are."""
    address = link_address(access, _FIND_SECONDS)
    env = ClientEnvironment(address.place, RayTls.from_environment())
    links = [ClusterLink(env, address.bootstrap, address.node_id) for _ in range(_STREAMS)]

    def asking(link: ClusterLink) -> _Ask:
        async def ask(message: Message, seconds: float) -> Message:
            place = await link.find_coordinator(OFFSETS_TOPIC, PARTITION, seconds)
            return (await link.ask(place, message, expect=GroupHeartbeatAnswer, timeout=seconds)).message

        return ask

    partitions = len((await links[0].find_topic(OFFSETS_TOPIC, _FIND_SECONDS)).partitions)
    yield [asking(link) for link in links], partitions
    for link in links:
        await link.close()


async def _measure(pid: int, access: ClusterAccess) -> dict[str, object]:
    async with _asking(access) as (ways, partitions):
        members = [Member(group, f"m{each}", TOPIC) for group in _names(partitions) for each in range(MEMBERS)]
        ways_of = list(zip(members, cycle(ways)))
        await asyncio.gather(*(_settle(ask, member) for member, ask in ways_of))
        beats = [_held(ask, member, start) for start, (member, ask) in _spread(ways_of)]
        held, _ = await _spent(pid, beats, after=INTERVAL_SECONDS)  # by then all have one under way
        beats = [_timed(ask, member, start) for start, (member, ask) in _spread(ways_of)]
        at_once, found = await _spent(pid, beats, after=0.0)
    return {"held": held, "at_once": at_once, "latencies": [each for latencies in found for each in latencies]}


def _spread(ways_of: list[tuple[Member, _Ask]]) -> Iterator[tuple[float, tuple[Member, _Ask]]]:
    """Return when each member begins: evenly within an interval."""
    for number, each in enumerate(ways_of):
        yield number * INTERVAL_SECONDS / len(ways_of), each


async def _settle(ask: _Ask, member: Member) -> None:
    quiet = 0
    while quiet < 2:
        quiet = 0 if member.hear(await ask(member.heartbeat(_SETTLE_WAIT_MS), _FIND_SECONDS)) else quiet + 1


async def _held(ask: _Ask, member: Member, start: float) -> list[float]:
    await asyncio.sleep(start)
    for _ in range(_INTERVALS + 1):
        member.hear(await ask(member.heartbeat(int(1000 * INTERVAL_SECONDS)), _FIND_SECONDS))
    return []


async def _timed(ask: _Ask, member: Member, start: float) -> list[float]:
    latencies = []
    due = time.perf_counter() + start
    for _ in range(_INTERVALS):
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        member.hear(await ask(member.heartbeat(0), _FIND_SECONDS))
        latencies.append(1000 * (time.perf_counter() - began))
        due += INTERVAL_SECONDS
    return latencies


async def _spent(pid: int, beats: Sequence[_Beats], after: float) -> tuple[float, list[list[float]]]:
    """(percent of a core that the coordinator takes from then on, for some intervals; what they found)."""
    beating = asyncio.gather(*beats)
    await asyncio.sleep(after)
    before, began = _processor_seconds(pid), time.monotonic()
    await asyncio.sleep(_INTERVALS * INTERVAL_SECONDS)
    share = 100 * (_processor_seconds(pid) - before) / (time.monotonic() - began)
    return share, await beating


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    pid, access = int(sys.argv[1]), pickle.loads(base64.b64decode(sys.argv[2]))
    sys.stdout.write(json.dumps(uvloop.run(_measure(pid, access))) + "\n")


if __name__ == "__main__":
    main()
