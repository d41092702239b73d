from __future__ import annotations

from raylog.actors.kernel.patience import Patience


def test_it_doubles_where_it_was_too_short_and_begins_again_where_it_was_enough() -> None:
    patience: Patience[int] = Patience(30.0, 100.0)
    patience.was_too_short(1, patience.of(1))
    assert (patience.of(1), patience.of(2)) == (60.0, 30.0)
    patience.was_too_short(1, 60.0)
    assert patience.of(1) == 100.0
    patience.was_enough(1)
    assert patience.of(1) == 30.0


def test_those_that_began_together_count_once() -> None:
    patience: Patience[str] = Patience(30.0, 240.0)
    given = patience.of("broker")
    for _ in range(4):
        patience.was_too_short("broker", given)
    assert patience.of("broker") == 60.0
    patience.was_too_short("broker", 60.0)
    patience.was_too_short("broker", given)  # a late one of the first
    assert patience.of("broker") == 120.0
