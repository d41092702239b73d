"""A pile of orders is charged by a pool of consumers that grows tenfold for it, drains it, and shrinks again.

    python -m examples.consumer_pool [curve.svg]

A few orders come each second, and one actor is enough for them. Then 40,000 come at once. A charge waits for 4 ms for
somebody else's service, as most handlers do, so one actor would need three minutes for them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import raylog
from examples.small_cluster import small_cluster

if TYPE_CHECKING:
    from raylog.api.admin.cluster import Cluster

ORDERS, GROUP = "pool-orders", "charges"
PILE, A_SECOND = 40_000, 40
ACTORS = 10
CHARGE_SECONDS = 0.004


@dataclass(frozen=True)
class Look:
    """The pool at one moment."""

    seconds: float
    lag: int
    running: int


def charge_all(max_actors: int = ACTORS, seconds: float = CHARGE_SECONDS) -> raylog.ConsumerPool:
    """Start the pool. It lives on without this program; `raylog pool stop charges` ends it."""

    def charge(record: Any) -> None:
        assert record.value.startswith(b"order")
        time.sleep(seconds)

    return raylog.ConsumerPool(
        charge, ORDERS, GROUP, min_actors=1, max_actors=max_actors, target_lag_seconds=2, down_after_seconds=6,
        num_cpus=0.1,
    )  # fmt: skip


@contextmanager
def orders_come(a_second: int) -> Iterator[None]:
    """Send a few orders each second while the block lasts."""
    is_over = threading.Event()

    def send() -> None:
        with raylog.Producer() as producer:
            while not is_over.wait(1 / a_second):
                producer.send(ORDERS, b"order", key=b"%d" % (time.monotonic_ns() % 1000))

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def pile_up(count: int) -> None:
    with raylog.Producer() as producer:
        producer.send_many(ORDERS, [b"order"] * count, [b"%d" % (each % 1000) for each in range(count)]).result(60)


def watch(
    pool: raylog.ConsumerPool, began: float, seen: list[Look], until: Callable[[Look], bool], most: float
) -> None:
    """Look at the pool twice a second, until something has come true or so many seconds have passed."""
    deadline = time.monotonic() + most
    while time.monotonic() < deadline:
        told = pool.describe()
        seen.append(Look(time.monotonic() - began, told.lag, told.running))
        if until(seen[-1]):
            return
        time.sleep(0.5)


def drain(
    pool: raylog.ConsumerPool, pile: int = PILE, actors: int = ACTORS, calm: float = 8, most: float = 240
) -> list[Look]:
    """Pile up orders, and return what the pool looked like until it was small again."""
    seen: list[Look] = []
    began = time.monotonic()
    with orders_come(A_SECOND):
        watch(pool, began, seen, lambda look: look.running == 1 and look.seconds > calm, most)
        pile_up(pile)
        watch(pool, began, seen, lambda look: look.running == actors, most)
        watch(pool, began, seen, lambda look: look.lag < 10 * A_SECOND, most)
        watch(pool, began, seen, lambda look: look.running == 1, most)
    return seen


def curve(seen: list[Look]) -> str:
    """Return the lag and the number of actors over time, as SVG."""
    width, height, left, top = 720, 260, 60, 20
    longest, deepest = max(each.seconds for each in seen), max(each.lag for each in seen) or 1
    largest = max(each.running for each in seen) or 1

    def x(seconds: float) -> float:
        return left + seconds / longest * width

    def y(share: float) -> float:
        return top + (1 - share) * height

    lag = " ".join(f"{x(each.seconds):.1f},{y(each.lag / deepest):.1f}" for each in seen)
    steps, before = [], seen[0].running
    for each in seen:
        steps += [f"{x(each.seconds):.1f},{y(count / largest):.1f}" for count in (before, each.running)]
        before = each.running
    bottom = top + height
    marks = "".join(
        f'<text x="{x(at):.0f}" y="{bottom + 18}" text-anchor="middle">{at} s</text>'
        for at in range(0, int(longest) + 1, 10)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 140} {bottom + 30}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#555">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<polygon points="{left},{bottom} {lag} {x(longest):.1f},{bottom}" fill="#3366cc33" stroke="#3366cc"/>'
        f'<polyline points="{" ".join(steps)}" fill="none" stroke="#c0392b" stroke-width="2"/>'
        f'<line x1="{left}" x2="{left + width}" y1="{bottom}" y2="{bottom}" stroke="#555"/>{marks}'
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end" fill="#3366cc">{deepest:,}</text>'
        f'<text x="{left + width + 8}" y="{top + 4}" fill="#c0392b">{largest} actors</text>'
        f'<text x="{left + 8}" y="{top + 4}" fill="#3366cc">records that wait</text>'
        "</svg>\n"
    )


def make_topic(cluster: Cluster, partitions: int = ACTORS) -> None:
    cluster.create_topic(ORDERS, partitions=partitions)


def main(arguments: list[str]) -> None:
    with small_cluster() as (cluster, _):
        make_topic(cluster)
        pool = charge_all()
        seen = drain(pool)
        for place, each in enumerate(seen):
            if place % 8 == 0:
                print(f"{each.seconds:5.0f} s  {each.lag:6} wait  {each.running:2} actors")
        print("from", seen[0].running or 1, "to", max(each.running for each in seen), "to", seen[-1].running, "actors")
        if arguments:
            Path(arguments[0]).write_text(curve(seen))
        pool.stop()
        print("the lag is", cluster.describe_group(GROUP).lag)


if __name__ == "__main__":
    main(sys.argv[1:])
