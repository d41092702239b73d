"""Whether each mutation fits the code: one that is called in a wrong way fails every seed, and looks as if caught."""

from __future__ import annotations

import pytest

from tests.simulator.mutations.mutations import MUTATIONS, Patches, switched_off


class Example:
    def method(self, first: int, second: int) -> int:
        return first + second


@pytest.mark.parametrize("name", sorted(MUTATIONS))
def test_a_mutation_fits_the_code_that_it_changes(name: str) -> None:
    with switched_off(name):
        pass


def test_a_function_that_is_called_otherwise_is_refused() -> None:
    method = Example.method
    with pytest.raises(LookupError, match="is called otherwise by now"):
        Patches().attribute(Example, "method", lambda self, first: first)
    with pytest.raises(LookupError, match="has no other of its own"):
        Patches().attribute(Example, "other", method)
    patches = Patches()
    patches.attribute(Example, "method", lambda self, *others: 0)
    assert Example().method(1, 2) == 0
    patches.undo()
    assert Example().method(1, 2) == 3
