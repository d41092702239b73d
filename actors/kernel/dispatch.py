"""Tables of handlers, by the kinds of message that they take. Other kinds are refused: MessageUnknown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from raylog.actors.protocol.messages import Message, numbers_of
from raylog.errors import MessageUnknown

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Dispatch(Generic[_Handler]):
    """Handlers by the kinds of message that they take. The owner of the table calls them."""

    __slots__ = ("_handlers",)

    def __init__(self, handlers: Mapping[type[Message], _Handler]) -> None:
        self._handlers = dict(handlers)

    def handler_of(self, message: Message) -> _Handler:
        """Return the handler of this kind of message. MessageUnknown: there is none."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise unknown(message)
        return handler


def unknown(message: Message) -> MessageUnknown:
    """Return the error that refuses this message."""
    return MessageUnknown(*numbers_of(type(message)))
