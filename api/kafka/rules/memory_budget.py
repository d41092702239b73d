"""The memory that all connections of a gateway hold together, and who may hold more of it (rule 31).

    asks for more ──it fits, and nobody waits──► held
          │
          └──► waits ──everybody before it has got room, and it fits──► held      └── withdrawn, its connection is over

Requests count, whole or midway; answers that are not taken; and batches that are kept for the next fetch.

What must stay true:
- What is held is never given more room than the bound, but for a little of each connection (`FREE_BYTES`). So
  heartbeats and small requests pass however much the others hold.
- Nobody overtakes somebody who waits, however little it asks for. So nobody starves.
- What asks for more than half of the bound waits for half of it: it would else wait until nobody holds anything.
- Somebody waits: kept batches go first. They can be fetched again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

# As much as a leader's process holds of answers (`kernel/answer_room.py`): 16 connections that hold all that one may,
# or 16,000 (the files of a process) that hold what each always may.
DEFAULT_MOST_BYTES: Final = 256 * 1024 * 1024
FREE_BYTES: Final = 16 * 1024


class Waiter:
    """A connection that waits for room. `granted` is called once it has that, and does no more than note it."""

    __slots__ = ("account", "granted", "size")

    def __init__(self, account: Account, size: int, granted: Callable[[], None]) -> None:
        self.account = account
        self.size = size
        self.granted = granted


class Account:
    """The bytes of one connection."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self.held = 0
        self._is_closed = False

    def take(self, size: int) -> None:
        """Count what is held already, or (negative) is no longer."""
        if not self._is_closed:
            self.held += size
            self.budget.changed(size)

    def may_take(self, size: int) -> bool:
        """Take so much if there is room now."""
        has_room = self.held + size <= FREE_BYTES or self.budget.has_room(size)
        if has_room:
            self.take(size)
        return has_room

    def wait(self, size: int, granted: Callable[[], None]) -> Waiter:
        """Take so much once everybody who waits has got room; then `granted` is called. It may be 0."""
        waiter = Waiter(self, size, granted)
        self.budget.wait(waiter)
        return waiter

    def close(self) -> None:
        """Give back everything, and wait for nothing: the connection is over."""
        held, self.held, self._is_closed = self.held, 0, True
        self.budget.forget(self)
        self.budget.changed(-held)


class MemoryBudget:
    """The memory of one process. `when_short` is called when somebody has to wait and nobody did before."""

    def __init__(self, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held = 0
        self.when_short: Callable[[], None] = lambda: None
        self._waiting: deque[Waiter] = deque()
        self._kept: dict[Account, Callable[[], None]] = {}  # what drops kept batches; the oldest first
        self._is_serving = False

    def account(self) -> Account:
        """Return the account of one more connection."""
        return Account(self)

    @property
    def is_short(self) -> bool:
        """Whether somebody waits, or would have to."""
        return bool(self._waiting) or self.held >= self.most_bytes

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def has_room(self, size: int) -> bool:
        """Whether so much more may be held now."""
        return not self._waiting and self._fits(size)

    def _fits(self, size: int) -> bool:
        return self.held + min(size, self.most_bytes // 2) <= self.most_bytes

    def keeps(self, account: Account, drop: Callable[[], None]) -> None:
        """Note that an account holds batches for its next fetch. `drop` gives them up, and is called at most once."""
        self._kept[account] = drop
        self._serve()

    def keeps_nothing(self, account: Account) -> None:
        """Note that it does not any more."""
        self._kept.pop(account, None)

    def wait(self, waiter: Waiter) -> None:
        """See `Account.wait`."""
        is_first = not self._waiting
        self._waiting.append(waiter)
        self._serve()
        if is_first and self._waiting:
            self.when_short()

    def withdraw(self, waiter: Waiter) -> None:
        """Wait no longer."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)
            self._serve()

    def forget(self, account: Account) -> None:
        """Withdraw all of an account."""
        self._kept.pop(account, None)
        self._waiting = deque(each for each in self._waiting if each.account is not account)
        self._serve()

    def changed(self, size: int) -> None:
        """Count what an account has taken, or (negative) given back."""
        self.held += size
        if size < 0:
            self._serve()

    def _serve(self) -> None:
        if self._is_serving:  # what is dropped here is given back
            return
        self._is_serving = True
        try:
            while self._waiting and self._serve_first(self._waiting[0]):
                pass
        finally:
            self._is_serving = False

    def _serve_first(self, first: Waiter) -> bool:
        if self._fits(first.size):
            self._waiting.popleft()
            first.account.take(first.size)
            first.granted()
        elif self._kept:
            self._kept.pop(next(iter(self._kept)))()
        else:
            return False
        return True

    def broken_invariants(self) -> list[str]:
        """Return what does not hold of it, in words."""
        found = []
        if self._waiting and self._fits(self._waiting[0].size):
            found.append("somebody waits for room that is there")
        if self._waiting and self._kept:
            found.append("somebody waits, and batches are kept for later")
        if self.held < 0:
            found.append(f"{self.held} bytes are held")
        return found
