"""Answers that are owed: to requests that a coordinator holds without a task, however many they are (rule 31).

What must stay true:
- An answer is given when the records that it rests on are committed. Where they are not, it is that error.
- A group of thousands of members that hear of one thing at once keeps the loop for a moment only: some of them hear of
  it in each turn, and others have their turns between (rule 34).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.stream_interface import LaterAnswer, Response, pass_on
from raylog.actors.protocol.messages import Message
from raylog.errors import RaylogError
from raylog.groups.coordinator.commit_line import CommitLine

_PER_TURN: Final = 100  # some 50 µs each

Owed: TypeAlias = "tuple[LaterAnswer, Message | BaseException]"
Answered: TypeAlias = "Message | LaterAnswer | Awaitable[Message]"


class GivenAnswers:
    """The answers of one coordinator that are owed."""

    def __init__(self, line: CommitLine, tasks: BackgroundTasks) -> None:
        self._loop = asyncio.get_running_loop()
        self._line = line
        self._tasks = tasks
        self._left: deque[Owed] = deque()

    def once_committed(self, ticket: int, group: str, answers: Sequence[Owed]) -> None:
        """Give these answers when the batch of this ticket is committed."""
        try:
            waiting = self._line.commit_of(ticket, group)
        except RaylogError as error:
            self.give([(owed, error) for owed, _ in answers])
            return
        if waiting is None:
            self.give(answers)
        else:
            waiting.add_done_callback(partial(self._committed, answers))

    def _committed(self, answers: Sequence[Owed], waiting: asyncio.Future[None]) -> None:
        error = waiting.exception()
        self.give(answers if error is None else [(owed, error) for owed, _ in answers])

    def give(self, answers: Sequence[Owed]) -> None:
        """Give these after those before them."""
        is_first = not self._left
        self._left.extend(answers)
        if is_first and self._left:
            self._loop.call_soon(self._give_some)

    def _give_some(self) -> None:
        for _ in range(min(_PER_TURN, len(self._left))):
            _give(*self._left.popleft())
        if self._left:
            self._loop.call_soon(self._give_some)

    def once_sure(self, group: str, ask: Callable[[], Answered]) -> LaterAnswer:
        """Ask for an answer as soon as it is clear that nobody has replaced this coordinator before."""
        owed = LaterAnswer()
        self._tasks.start(self._ask_once_sure(group, ask, owed))
        return owed

    async def _ask_once_sure(self, group: str, ask: Callable[[], Answered], owed: LaterAnswer) -> None:
        try:
            await self._line.committed(self._line.last_ticket, group)
            if owed.done():  # whoever asked has gone
                return
            answer = ask()
            if isinstance(answer, LaterAnswer):
                owed.when_cancelled(answer.cancel)
                pass_on(answer, owed)
            else:
                _give(owed, answer if isinstance(answer, Message) else await answer)
        except RaylogError as error:
            _give(owed, error)


def _give(owed: LaterAnswer, answer: Message | BaseException) -> None:
    """Give an answer or an error, unless nobody waits for it any more."""
    if owed.done():
        return
    if isinstance(answer, Message):
        owed.give(Response(answer))
    else:
        owed.fail(answer)


async def answer_of(owed: LaterAnswer) -> Message:
    """Wait for an answer that is owed. If this is cancelled, it is owed no longer."""
    try:
        answer = await owed
    except asyncio.CancelledError:
        owed.cancel()
        raise
    assert answer is not None  # a coordinator says more than Done by itself
    return answer.message
