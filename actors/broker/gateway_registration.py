"""A broker's part in its gateway for Kafka clients: the cluster hears where that serves, and it hears of the others.

    gateway ──GatewayHello──► broker ──ReportGateway──► controller: GatewayServes ──► all brokers ──► their gateways

What must stay true:
- The metadata log names a gateway that has said hello. One that is gone is taken out of it, though not at once: a new
  process serves at the same address within seconds, and clients that know it wait for that.
- A broker that has no gateway, and never had one, does nothing here.
- Nothing is reported before this broker knows what the log says: a gateway outlives its broker's process.
- A gateway hears of each change when this broker does, also while the controller is asked. What a congested stream
  refuses is told later; otherwise the gateway would go on admitting a user who was deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from raylog.actors.broker.users_passed_on import UsersPassedOn
from raylog.actors.cluster.assignments import gateways_of
from raylog.actors.cluster.state import ClusterState
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.process_watch import ProcessWatch
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.gateway_messages import (
    GatewayHello,
    GatewaysServe,
    NamedGateway,
    ReportGateway,
    StopGateway,
)
from raylog.actors.protocol.messages import Message
from raylog.errors import RaylogError

_GRACE_SECONDS: Final = 10.0  # for a gateway to come, or to come back
_RETRY_SECONDS: Final = 1.0

_log = logging.getLogger(__name__)


class GatewayRegistration:
    """Reports the gateway of one broker. `known` returns the state of the cluster; None: it is not up to date yet.

    `ask` carries a message to the controller.
    """

    def __init__(
        self,
        env: Environment,
        tasks: BackgroundTasks,
        broker_id: int,
        known: Callable[[], ClusterState | None],
        ask: Callable[[Message], Awaitable[Response]],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks = tasks
        self._process = ProcessWatch(env, tasks, "gateway", StopGateway())
        self._broker_id = broker_id
        self._known = known
        self._ask = ask
        self._address = ""
        self._believed_until = self._loop.time() + _GRACE_SECONDS  # where there is no gateway: what the log says of it
        self._told: tuple[NamedGateway, ...] | None = None
        self._users: tuple[Stream, UsersPassedOn] | None = None  # to whom they are told
        self._news = asyncio.Event()
        self._is_reporting = False
        self._tells_again = False

    @property
    def stream(self) -> Stream | None:
        """The stream to the gateway, while there is one."""
        return self._process.stream

    def hello(self, hello: GatewayHello, stream: Stream) -> None:
        """A gateway presents itself, perhaps once more."""
        self._process.hello(hello.pid, stream)
        self._address, self._told = hello.address, None
        stream.closed.add_done_callback(lambda _: self._ended(stream))
        self.changed()

    def follow_users(self, stream: Stream) -> None:
        """Tell a gateway all users from now on, over the stream of its hello."""
        self._users = stream, UsersPassedOn()
        self.changed()

    def changed(self) -> None:
        """Act on what the log says now."""
        state = self._known()
        if state is not None:
            self._tell_gateway(state)
        self._news.set()
        if not self._is_reporting and (self._address or self._known_address()):
            self._is_reporting = True
            self._tasks.start(self._report_for_ever())

    async def stop(self) -> None:
        """Let the gateway end; kill it if it takes long."""
        await self._process.stop()

    def _known_address(self) -> str:
        """Return the address of its gateway in the metadata log; empty: there is none, or it is not known yet."""
        state = self._known()
        broker = None if state is None else state.brokers.get(self._broker_id)
        return "" if broker is None else broker.gateway

    async def _report_for_ever(self) -> None:
        while True:
            self._news.clear()
            if self._known() is not None and self._is_news():
                await self._report()
            else:
                await self._wait_for_news()

    def _ended(self, stream: Stream) -> None:
        if self._process.stream is None or self._process.stream is stream:
            self._address, self._believed_until = "", self._loop.time() + _GRACE_SECONDS
            self._news.set()

    def _tell_gateway(self, state: ClusterState) -> None:
        stream, is_refused = self._process.stream, False
        if stream is None:
            return
        gateways = gateways_of(state)
        if gateways != self._told:
            is_refused = not self._process.tell(GatewaysServe(gateways))
            self._told = None if is_refused else gateways
        users = self._users[1].news(state.security) if self._users is not None and self._users[0] is stream else ()
        if not all(map(self._process.tell, users)):
            is_refused = True
            self._users = stream, UsersPassedOn()  # all of them anew
        if is_refused and not self._tells_again:
            self._tells_again = True
            self._tasks.start(self._tell_again())

    async def _tell_again(self) -> None:
        await asyncio.sleep(_RETRY_SECONDS)
        self._tells_again = False
        self.changed()

    def _is_news(self) -> bool:
        if self._known_address() == self._address:
            return False
        return bool(self._address) or self._loop.time() >= self._believed_until

    async def _report(self) -> None:
        """Have it written into the log. The answer may be here before the log is: that comes as news."""
        try:
            await self._ask(ReportGateway(self._broker_id, self._address))
        except RaylogError as error:
            _log.info("The gateway of broker %d is reported again in a moment: %s", self._broker_id, error)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            await self._wait_for_news()

    async def _wait_for_news(self) -> None:
        """Wait for a change, or for the end of the grace of a gateway that is away."""
        left = self._believed_until - self._loop.time()
        try:
            await asyncio.wait_for(self._news.wait(), left if left > 0 and not self._address else None)
        except asyncio.TimeoutError:
            return
