"""A pool's handler as it travels: read on the thread of its worker, and with it what its consumers need.

What must stay true: reading imports the user's modules, which may take long, or hang. Meanwhile the actor answers, and
so its supervisor sees that it does not come up.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from raylog.api.pool.handlers import Handler
from raylog.api.pool.worker import Loop, OpenLoop


class PickledHandler:
    """The handler of one worker. `make` comes first, then `open`."""

    def __init__(self, code: bytes, loops: Callable[[Mapping[str, Any]], OpenLoop]) -> None:
        self._code, self._loops = code, loops
        self._open: OpenLoop | None = None

    def make(self) -> Handler:
        """Read the handler, and make it. It raises what the user's modules raise."""
        handler, options = pickle.loads(self._code)
        self._open = self._loops(options)
        return Handler(handler)

    def open(self, handler: Handler, pause: Callable[[float], bool]) -> AbstractContextManager[Loop]:
        assert self._open is not None
        return self._open(handler, pause)
