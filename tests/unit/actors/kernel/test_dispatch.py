from __future__ import annotations

from collections.abc import Callable

import pytest

from raylog.actors.kernel.stream_interface import Dispatch, unknown
from raylog.actors.protocol.messages import Done, Message, Ping, numbers_of
from raylog.errors import MessageUnknown


def test_each_kind_of_message_has_its_handler() -> None:
    handlers: Dispatch[Callable[[object], str]] = Dispatch({Ping: lambda _: "ping", Done: lambda _: "done"})
    assert [handlers.handler_of(each)(each) for each in (Done(), Ping(), Done())] == ["done", "ping", "done"]


def test_a_kind_without_a_handler_is_refused_by_its_numbers() -> None:
    handlers: Dispatch[Callable[[object], str]] = Dispatch({Ping: lambda _: "ping"})
    with pytest.raises(MessageUnknown) as caught:
        handlers.handler_of(Done())
    assert (caught.value.kind, caught.value.version) == numbers_of(Done)
    assert str(unknown(Done())) == str(caught.value)


def test_a_later_change_of_what_it_was_made_from_changes_nothing() -> None:
    table: dict[type[Message], Callable[[object], str]] = {Ping: lambda _: "ping"}
    handlers = Dispatch(table)
    table[Done] = lambda _: "done"
    with pytest.raises(MessageUnknown):
        handlers.handler_of(Done())
