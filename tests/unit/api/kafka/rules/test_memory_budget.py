"""The memory that connections of a gateway hold together."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.api.kafka.rules.memory_budget import FREE_BYTES, Account, MemoryBudget

_KIB = 1024
_MOST = 256 * _KIB


def test_a_little_is_always_there() -> None:
    budget = MemoryBudget(_MOST)
    greedy, modest = budget.account(), budget.account()
    assert greedy.may_take(_MOST)
    assert not greedy.may_take(1)
    assert modest.may_take(FREE_BYTES)
    assert not modest.may_take(1)
    assert budget.is_short


def test_nobody_overtakes_one_that_waits() -> None:
    budget = MemoryBudget(_MOST)
    holder, large, small = (budget.account() for _ in range(3))
    order: list[str] = []
    holder.take(_MOST)
    large.wait(100 * _KIB, lambda: order.append("large"))
    small.wait(20 * _KIB, lambda: order.append("small"))
    holder.take(-50 * _KIB)
    assert order == []
    assert not budget.account().may_take(20 * _KIB)
    holder.take(-50 * _KIB)
    assert (order, large.held) == (["large"], 100 * _KIB)
    holder.take(-50 * _KIB)
    assert (order, small.held, budget.is_short) == (["large", "small"], 20 * _KIB, False)


def test_what_asks_for_more_than_half_waits_for_half() -> None:
    budget = MemoryBudget(_MOST)
    holder, huge = budget.account(), budget.account()
    holder.take(_MOST // 2 + 1)
    assert not huge.may_take(10 * _MOST)
    granted: list[int] = []
    huge.wait(10 * _MOST, lambda: granted.append(1))
    holder.take(-1)
    assert granted == [1]
    assert budget.held == _MOST // 2 + 10 * _MOST


def test_kept_batches_go_before_anybody_waits() -> None:
    budget = MemoryBudget(_MOST)
    keepers = [budget.account() for _ in range(2_000)]  # more than there may be calls within each other

    def keep(account: Account) -> None:
        account.take(_MOST // len(keepers))
        budget.keeps(account, lambda: account.take(-account.held))

    for each in keepers:
        keep(each)
    newcomer = budget.account()
    granted: list[int] = []
    newcomer.wait(_MOST // 2, lambda: granted.append(1))
    assert granted == [1]
    assert [each.held == 0 for each in keepers] == sorted((each.held == 0 for each in keepers), reverse=True)
    assert keepers[-1].held > 0
    newcomer.wait(_MOST // 2, lambda: granted.append(2))
    assert (granted, keepers[-1].held) == ([1, 2], 0)
    newcomer.wait(FREE_BYTES, lambda: granted.append(3))
    keep(keepers[0])
    assert keepers[0].held == 0  # while somebody waits nothing is kept


def test_one_that_is_over_gives_back_all_and_waits_for_nothing() -> None:
    budget = MemoryBudget(_MOST)
    first, second, third = (budget.account() for _ in range(3))
    granted: list[str] = []
    first.take(_MOST)
    second.wait(_MOST, lambda: granted.append("second"))
    waiter = third.wait(FREE_BYTES, lambda: granted.append("third"))
    second.close()
    second.take(5)  # a task of it that has not ended yet
    first.close()
    assert (granted, budget.held) == (["third"], FREE_BYTES)
    budget.withdraw(waiter)  # too late
    assert budget.held == FREE_BYTES


class Budgets(RuleBasedStateMachine):
    """Connections that take, wait, give back and end in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.shortages = 0
        self.budget = MemoryBudget(_MOST)
        self.budget.when_short = self._short
        self.accounts: list[Account] = []
        self.asked: list[int] = []
        self.granted: list[int] = []

    def _short(self) -> None:
        self.shortages += 1

    @rule()
    def come(self) -> None:
        self.accounts.append(self.budget.account())

    @precondition(lambda self: self.accounts)
    @rule(place=st.integers(0, 100), size=st.integers(0, _MOST))
    def ask(self, place: int, size: int) -> None:
        account = self.accounts[place % len(self.accounts)]
        held = self.budget.held
        if account.may_take(size):
            assert account.held <= FREE_BYTES or held + min(size, _MOST // 2) <= _MOST
            return
        number = len(self.asked)
        self.asked.append(number)
        account.wait(size, lambda: self.granted.append(number))

    @precondition(lambda self: self.accounts)
    @rule(place=st.integers(0, 100), share=st.floats(0, 1))
    def give_back(self, place: int, share: float) -> None:
        account = self.accounts[place % len(self.accounts)]
        account.take(-int(account.held * share))

    @precondition(lambda self: self.accounts)
    @rule(place=st.integers(0, 100))
    def keep(self, place: int) -> None:
        account = self.accounts[place % len(self.accounts)]
        self.budget.keeps(account, lambda: account.take(-account.held))

    @precondition(lambda self: self.accounts)
    @rule(place=st.integers(0, 100))
    def end(self, place: int) -> None:
        self.accounts.pop(place % len(self.accounts)).close()

    @invariant()
    def holds(self) -> None:
        assert self.budget.broken_invariants() == []
        assert self.budget.held == sum(each.held for each in self.accounts)
        assert self.granted == sorted(self.granted)
        assert not self.budget.is_waited_for or self.shortages > 0

    def teardown(self) -> None:
        for each in self.accounts:
            each.close()
        assert self.budget.held == 0
        assert not self.budget.is_waited_for


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(max_examples=100, deadline=None)
