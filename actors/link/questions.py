"""Questions of a client that any broker may answer, and the one that waits for news.

News is new metadata. A question for it is kept open at up to three brokers at once. So this client learns of a new
leader within milliseconds, from the broker that learns of it first. A broker that is stopped or cut off does not delay
that. For each broker:

    chosen ──question──► asked ──answer──► asked again
                           └── no stream, no answer, or nothing new while others know more ──► another is chosen

What must stay true:
- A broker that is stopped or cut off delays an answer by a fraction of a second, not by a time-out: the next one is
  asked while the first is silent. So only questions that may be asked twice go this way.
- The addresses that a client was given first are never forgotten: all brokers may come back under other addresses than
  those in the last metadata.
- The topics of the question for news change over time, and the version that it waits on belongs to the topics of the
  last question. So a question for other topics is answered at once. It says as of which version all of its topics are
  known: the answer is what has changed since.

`until_answered` asks one question again and again until there is an answer.

    asked ──answer──► done
      ▲ └──error──► final, or the time is over: raised
      └───pause─────┘ otherwise

The caller says which errors are final, since that depends on the question. A coordinator, for example, asks again for
a topic that is unknown, because it waits for its own; a consumer does not, because its user may have misspelt the name.

What must stay true:
- Only questions that may be asked twice go this way.
- The time that is given is a bound for all attempts and pauses together. The last error is raised when it is over.
- An answer of the wrong kind is final (`AnswerUnexpected`): no repetition mends versions that differ.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, TypeAlias, TypeVar

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Stream, expected
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.rules.topic_cache import nearest_first
from raylog.actors.link.stream_pool import Endpoints, StreamPool
from raylog.actors.protocol.control_messages import NOTHING_KNOWN, BrokerMetadata, GetMetadata, Metadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    AnswerUnexpected,
    ClusterUnreachable,
    ControlError,
    MessageUnknown,
    PeerNotAdmitted,
    PeerUnreachable,
    RaylogError,
    RemoteFailed,
    StreamClosed,
    StreamError,
    StreamNotOpen,
)

_NEXT_SECONDS: Final = 0.25  # of silence, after which another broker is asked too
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 0.5
_FIND_SECONDS: Final = 3.0
_SILENCE: Final = "there was no answer in time"
_REFUSALS: Final = 3  # rounds in which no broker admits this client, before that is believed
_AT_ONCE: Final = 3
_WAIT_MS: Final = 2_000
_ANSWER_SECONDS: Final = 4.0
_DIAL_SECONDS: Final = 3.0
_CHECK_SECONDS: Final = 1.0  # of silence of the one broker that is asked
_LOOK_AGAIN_SECONDS: Final = 0.1
_SPARE_SECONDS: Final = 1.0  # between looks whether there is a broker more than are asked

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Answer = TypeVar("_Answer", bound=Message)
FindBrokers: TypeAlias = Callable[[], Awaitable[Sequence[Endpoint]]]


async def until_answered(
    ask: Callable[[float], Awaitable[_T]],
    backoff: Backoff,
    *,
    is_final: Callable[[RaylogError], bool],
    failed: Callable[[RaylogError], None],
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
    seconds: float = math.inf,
) -> _T:
    """Return what `ask` returns; it is given the seconds that are left, and is called at least once.

    `failed` is called with each error that is not final. `pause` waits for so long, or less where something has
    changed; what it raises is raised. After a pause that the end of the time cuts short the last error is raised.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            return await ask(max(0.0, deadline - loop.time()))
        except RaylogError as error:
            if isinstance(error, AnswerUnexpected) or is_final(error):
                raise
            last = error
        failed(last)
        left, wait = deadline - loop.time(), backoff.next()
        if left > 0:
            await pause(min(wait, left))
        if wait >= left:
            raise last


def may_pass(error: RaylogError) -> bool:
    """Return whether an error may pass by itself. Errors of streams do, but for those of secrets and versions."""
    never = isinstance(error, (AnswerUnexpected, MessageUnknown, PeerNotAdmitted))
    return error.retriable or (isinstance(error, StreamError) and not never)


class Brokers:
    """The brokers' addresses. The nearest comes first; the others are in random order, to spread the load.

    `find` finds brokers anew when none of the known ones answers.
    """

    def __init__(
        self, bootstrap: Sequence[Endpoint], node_id: str, random: Random, find: FindBrokers | None = None
    ) -> None:
        self._bootstrap = list(dict.fromkeys(bootstrap))
        self._node_id = node_id
        self._random = random
        self._find = find
        self._found_at = -math.inf
        self._known: tuple[BrokerMetadata, ...] = ()
        self._racks: dict[int, str] = {}  # also of brokers that are fenced for a while
        self._order: list[Endpoints] = [(each,) for each in bootstrap]
        random.shuffle(self._order)
        self._order.sort(key=lambda each: not each[0].is_unix)

    def learn(self, brokers: tuple[BrokerMetadata, ...]) -> bool:
        """Take over all brokers that are not fenced, by the newest metadata. Return whether any of that is new."""
        if brokers == self._known or not brokers:
            return False
        self._known = brokers
        self._racks.update((each.broker_id, each.rack) for each in brokers)
        told = [
            (each.node_id == self._node_id, nearest_first(each.endpoints, each.node_id, self._node_id))
            for each in brokers
        ]
        self._random.shuffle(told)
        told.sort(key=lambda each: not each[0])
        covered = {str(endpoint) for _, endpoints in told for endpoint in endpoints}
        rest: list[Endpoints] = [(each,) for each in self._bootstrap if str(each) not in covered]
        self._order = [endpoints for _, endpoints in told if endpoints] + rest
        return True

    @property
    def count(self) -> int:
        return len(self._known)

    def all(self) -> list[Endpoints]:
        return list(self._order)

    def rack_of(self, broker: int) -> str:
        """Return its rack by the last metadata that named it; empty: none."""
        return self._racks.get(broker, "")

    async def find_again(self) -> None:
        """Find brokers anew, since none of the known ones answers; at most every few seconds."""
        now = asyncio.get_running_loop().time()
        if self._find is None or now < self._found_at + _FIND_SECONDS:
            return
        self._found_at = now
        try:
            found = await asyncio.wait_for(self._find(), _FIND_SECONDS)
        except (RaylogError, asyncio.TimeoutError) as error:
            _log.info("No brokers were found: %s", error)
            return
        new = [each for each in found if each not in self._bootstrap]
        self._bootstrap += new
        self._order += [(each,) for each in new if (each,) not in self._order]

    def __contains__(self, endpoints: Endpoints) -> bool:
        return endpoints in self._order

    def __str__(self) -> str:
        return ", ".join(str(endpoints[-1]) for endpoints in self._order) or "no address"


class BrokerQuestions:
    def __init__(self, pool: StreamPool, brokers: Brokers, random: Random) -> None:
        self._random = random
        self._pool = pool
        self._brokers = brokers
        self._loop = asyncio.get_running_loop()
        self._asked = 0

    async def ask(self, message: Message, expect: type[_Answer], timeout: float) -> _Answer:
        """Return what the first broker answers.

        ClusterUnreachable: none did in time. PeerNotAdmitted: none takes this client. ControlError: all refuse it.
        """
        with Wait(f"an answer of a broker at {self._brokers}") as wait:
            return await self._ask_all(message, expect, timeout, wait)

    async def ask_one(self, message: Message, expect: type[_Answer], timeout: float) -> _Answer:
        """Ask one broker once: what must not be done twice goes this way.

        PeerUnreachable, StreamNotOpen, TooManyBytesInFlight: nothing was sent. StreamClosed, RequestTimedOut: the
        outcome is unknown (rule 27). Else what the broker raised.
        """
        broker = next(iter(self._in_turn()))
        deadline = self._loop.time() + timeout
        stream: Stream = await self._pool.get(broker, min(timeout, _DIAL_SECONDS))
        answer = asyncio.ensure_future(stream.request(message, timeout=max(deadline - self._loop.time(), 0.0)))
        try:
            while not (await asyncio.wait([answer], timeout=_CHECK_SECONDS))[0]:
                self._pool.check(broker)  # it may be stopped: the stream is given up then
            return expected(answer.result().message, expect, stream.peer)
        except RemoteFailed as error:
            if isinstance(error.error, StreamNotOpen):  # of the broker, which may have passed the request on before
                raise StreamClosed(stream.peer, error.error.describe()) from None
            if not isinstance(error.error, MessageUnknown):
                raise error.error or error from None
            stranger = PeerUnreachable(stream.peer, "it is no broker that knows this request")  # its port was reused
            self._pool.failed(broker, stranger)
            raise stranger from None
        finally:
            answer.cancel()

    async def _ask_all(self, message: Message, expect: type[_Answer], timeout: float, wait: Wait) -> _Answer:
        """Ask in rounds. `until_answered` asks one after the other, and raises the last error; here several brokers are
        asked at once, and what all of a round have said decides what is raised."""
        deadline = self._loop.time() + timeout
        refusals = 0
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        while True:
            answer, errors = await self._round(message, expect, deadline)
            if answer is not None:
                return answer
            refusals = refusals + 1 if errors and all(isinstance(each, PeerNotAdmitted) for each in errors) else 0
            left = deadline - self._loop.time()
            if refusals == _REFUSALS or left <= 0:
                raise self._verdict(errors, timeout)
            wait.failed(errors[-1] if errors else _SILENCE)
            await self._brokers.find_again()
            await asyncio.sleep(min(backoff.next(), left))

    async def _round(
        self, message: Message, expect: type[_Answer], deadline: float
    ) -> tuple[_Answer | None, list[RaylogError]]:
        """Ask brokers one after the other until one answers. None: none did; their errors."""
        waiting = self._in_turn()
        running: list[asyncio.Task[_Answer]] = []
        errors: list[RaylogError] = []
        try:
            while (waiting or running) and (left := deadline - self._loop.time()) > 0:
                if waiting:
                    running.append(self._loop.create_task(self._ask_at(waiting.popleft(), message, expect, left)))
                await asyncio.wait(
                    running, timeout=min(_NEXT_SECONDS, left) if waiting else left, return_when=asyncio.FIRST_COMPLETED
                )
                for task in [each for each in running if each.done()]:
                    running.remove(task)
                    error = task.exception()
                    if error is None:
                        return task.result(), errors
                    if not isinstance(error, RaylogError):
                        raise error
                    errors.append(error)
            return None, errors
        finally:
            for task in running:
                task.cancel()

    def _in_turn(self) -> deque[Endpoints]:
        """Return the brokers to ask. Each question begins at another one; those in a pause come last."""
        brokers = self._brokers.all()
        first = self._asked % max(len(brokers), 1)
        self._asked += 1
        turned = brokers[first:] + brokers[:first]
        turned.sort(key=self._pool.is_paused)
        return deque(turned)

    async def _ask_at(self, broker: Endpoints, message: Message, expect: type[_Answer], timeout: float) -> _Answer:
        deadline = self._loop.time() + timeout
        stream: Stream = await self._pool.get(broker, timeout)
        try:
            answer = await stream.request(message, timeout=max(deadline - self._loop.time(), 0.0))
        except RemoteFailed as error:
            raise error.error or error from None
        return expected(answer.message, expect, stream.peer)

    def _verdict(self, errors: Sequence[RaylogError], timeout: float) -> RaylogError:
        for error in errors:
            if isinstance(error, ControlError):
                return error
        if errors and all(isinstance(each, PeerNotAdmitted) for each in errors):
            return errors[-1]
        return self.unreachable(timeout, errors[-1].describe().rstrip(".") if errors else _SILENCE)

    def unreachable(self, timeout: float, reason: str = _SILENCE) -> ClusterUnreachable:
        return ClusterUnreachable(str(self._brokers), round(timeout * 1000), reason)


class MetadataWatch:
    """Asks for newer metadata until it is cancelled.

    `topics` returns the topics to ask for; empty: all. `learn` takes each answer with the topics of its question.
    `version` returns the newest metadata version that is known here, `version_of` that as of which topics are known.
    """

    def __init__(
        self,
        pool: StreamPool,
        brokers: Brokers,
        topics: Callable[[], tuple[str, ...]],
        learn: Callable[[Metadata, tuple[str, ...]], None],
        version: Callable[[], int],
        version_of: Callable[[tuple[str, ...]], int],
    ) -> None:
        self._pool = pool
        self._brokers = brokers
        self._topics = topics
        self._learn = learn
        self._version = version
        self._version_of = version_of
        self._loop = asyncio.get_running_loop()
        self._asked: set[Endpoints] = set()
        self._begun_at = math.inf

    def begin(self, tasks: BackgroundTasks) -> None:
        """Begin to ask. A second call changes nothing."""
        if self._begun_at == math.inf:
            self._begun_at = self._loop.time()
            for _ in range(_AT_ONCE):
                tasks.start(self._keep_asking())

    def seconds(self) -> float:
        """Return for how long it has asked."""
        return max(0.0, self._loop.time() - self._begun_at)

    def asked(self) -> set[Endpoints]:
        """Return the brokers with an open question."""
        return set(self._asked)

    async def _keep_asking(self) -> None:
        while True:
            broker = self._choose()
            if broker is None:
                if not self._asked:
                    await self._brokers.find_again()
                await asyncio.sleep(_SPARE_SECONDS if self._asked else _LOOK_AGAIN_SECONDS)
                continue
            self._asked.add(broker)
            try:
                error = await self._ask_at(broker)
            finally:
                self._asked.discard(broker)
            if error is not None:
                self._pool.failed(broker, error)

    def _choose(self) -> Endpoints | None:
        """Return the first broker without an open question."""
        free = (each for each in self._brokers.all() if each not in self._asked and not self._pool.is_paused(each))
        return next(free, None)

    async def _ask_at(self, broker: Endpoints) -> RaylogError | None:
        """Ask this broker until that fails, and return the error. None: it is no longer one of the brokers."""
        try:
            return await self._ask_over(await self._pool.get(broker, _DIAL_SECONDS), broker)
        except RaylogError as error:
            return error

    async def _ask_over(self, stream: Stream, broker: Endpoints) -> RaylogError | None:
        version = NOTHING_KNOWN
        of_topics: tuple[str, ...] | None = None
        while True:
            topics = self._topics()
            known = self._version_of(topics)
            newer_than = max(known, version if topics == of_topics else NOTHING_KNOWN)
            question = GetMetadata(topics, newer_than, _WAIT_MS, known)
            told = await stream.request(question, timeout=_ANSWER_SECONDS)
            answer = expected(told.message, Metadata, stream.peer)
            self._learn(answer, topics)
            if answer.version <= newer_than and answer.version < self._version():
                return PeerUnreachable(stream.peer, "it does not know what other brokers know")
            if broker not in self._brokers:
                return None
            version, of_topics = answer.version, topics
