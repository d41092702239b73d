"""Parts of a consumer on its process's client loop: how they are made, and ended."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.connection.client_access import link_address
from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.fetch_buffer import FetchBuffer
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.group.group_client import GroupClient
from raylog.api.consumer.group_subscription import GroupSubscription
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.subscription_state import SubscriptionState

CLOSE_SECONDS: Final = 5.0


def open_link(runtime: ClientRuntime, cluster: Any, timeout: float) -> ClusterLink:
    """Open the link to the cluster that is meant, shared with other clients of this process."""
    address = link_address(cluster, timeout)
    return runtime.run(runtime.acquire_link(address), timeout)


async def begin_fetching(link: ClusterLink, options: ConsumerOptions) -> tuple[Fetcher, FetchBuffer]:
    fetcher = Fetcher(link, options)
    return fetcher, FetchBuffer(fetcher)


async def end_fetching(runtime: ClientRuntime, fetcher: Fetcher, buffer: FetchBuffer, link: ClusterLink) -> None:
    buffer.close()
    await fetcher.close()
    await runtime.release_link(link)


async def join_group(
    runtime: ClientRuntime,
    link: ClusterLink,
    options: ConsumerOptions,
    subscriptions: SubscriptionState,
    fetcher: Fetcher,
    buffer: FetchBuffer,
) -> GroupSubscription:
    def known_end(partition: TopicPartition) -> int:
        marks = fetcher.marks.get(partition)
        return 0 if marks is None else marks.high_watermark

    group = GroupSubscription(runtime, options, subscriptions, buffer.wake)
    client = GroupClient(link, options, group.since_poll, group.put, group.linger, known_end)
    group.begin(client, runtime.at_exit(partial(client.close, {}, CLOSE_SECONDS)))
    return group


def let_go(
    runtime: ClientRuntime, fetcher: Fetcher, buffer: FetchBuffer, link: ClusterLink, group: GroupSubscription | None
) -> None:
    """End what a consumer has on the loop, on whatever thread its last reference went. It waits for nothing: this may
    be the loop itself.
    """

    async def end() -> None:
        if group is not None:
            group.forget()
            await group.client.close({}, CLOSE_SECONDS)
        await end_fetching(runtime, fetcher, buffer, link)

    if runtime.is_running:
        asyncio.run_coroutine_threadsafe(end(), runtime.loop)
