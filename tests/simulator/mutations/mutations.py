"""Each rule of 1 to 18 switched off, one clause at a time, to see that the simulator notices.

    with switched_off("acks_at_append"):
        run_seed(17)                       # raises

A mutation replaces one function, method or constant of the running code by one without the clause; all else stays as
it is. They are defined in `mutations_of_*.py`, by the area of the code. Which seed catches which: `mutation_seeds.py`.

What must stay true: outside of `switched_off` the code is what it was; and a mutation that is `masked` says by what,
for then nothing here shows that its clause is of any use.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from types import FunctionType
from typing import Any, Final

from tests.simulator.plan import Plan

_MISSING: Final = object()


@dataclass
class Patches:
    """Attributes that were replaced, to be put back in the end."""

    _undo: list[Callable[[], None]] = field(default_factory=list)

    def attribute(self, owner: Any, name: str, replacement: Any) -> Any:
        """Replace a method of a class, or a name of a module. Returns what was there."""
        before = vars(owner).get(name, _MISSING)
        if before is _MISSING:
            raise LookupError(f"{owner} has no {name} of its own: the code has changed, and this mutation must follow.")
        if not _takes_the_same(before, replacement):
            raise LookupError(f"{owner}.{name} is called otherwise by now: this mutation must follow the code.")
        setattr(owner, name, replacement)
        self._undo.append(lambda: setattr(owner, name, before))
        return before

    def function(self, function: Callable[..., Any], replacement: Callable[..., Any]) -> None:
        """Replace a function under all names by which raylog's modules know it."""
        found = 0
        for module_name, module in list(sys.modules.items()):
            if module_name.startswith("raylog."):
                for name, value in list(vars(module).items()):
                    if value is function:
                        self.attribute(module, name, replacement)
                        found += 1
        assert found, function

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _takes_the_same(function: object, replacement: object) -> bool:
    """Whether one function can be called as the other is. Other objects are not compared."""
    if not (isinstance(function, FunctionType) and isinstance(replacement, FunctionType)):
        return True
    counts = []
    for each in (function, replacement):
        parameters = signature(each).parameters.values()
        if any(parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters):
            return True
        counts.append(sum(parameter.kind is Parameter.POSITIONAL_OR_KEYWORD for parameter in parameters))
    return counts[0] == counts[1]


def _anywhere(plan: Plan) -> bool:
    return True


def theme(name: str) -> Callable[[Plan], bool]:
    """A seed of this theme is the most likely to tell; so only those are tried."""
    return lambda plan: plan.theme == name


@dataclass(frozen=True)
class Mutation:
    """`masked`: why no seed can tell that the clause is off, where that is so. `where`: only such a plan may tell."""

    rule: int
    name: str
    what: str
    switch_off: Callable[[Patches], None]
    masked: str = ""
    where: Callable[[Plan], bool] = _anywhere


MUTATIONS: Final[dict[str, Mutation]] = {}


def mutation(
    rule: int, what: str, *, masked: str = "", where: Callable[[Plan], bool] = _anywhere
) -> Callable[[Callable[[Patches], None]], Callable[[Patches], None]]:
    """Registers a function under its name."""

    def register(switch_off: Callable[[Patches], None]) -> Callable[[Patches], None]:
        name = switch_off.__name__
        assert name not in MUTATIONS
        MUTATIONS[name] = Mutation(rule, name, what, switch_off, masked, where)
        return switch_off

    return register


@contextmanager
def switched_off(name: str) -> Iterator[None]:
    """Nothing is switched off by an empty name."""
    if not name:
        yield
        return
    patches = Patches()
    try:
        MUTATIONS[name].switch_off(patches)
        yield
    finally:
        patches.undo()


for _area in ("replication", "control", "logs", "copies"):
    import_module(f"tests.simulator.mutations.mutations_of_{_area}")
