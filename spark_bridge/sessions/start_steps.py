"""Telling in the log which step the start of a Spark session is at, where it takes long: after 3 s, then every 10."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from raylog.actors.kernel.wait_notices import WaitNotices

_LOOK_SECONDS: Final = 0.5


class StartSteps:
    """The steps of one start: `with StartSteps(app) as steps: steps.step = "…"`. `clock` is monotonic."""

    def __init__(self, app: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.step = "it looks for Java"
        self._app = app
        self._notices = WaitNotices(clock)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="start of Spark", daemon=True)

    def look(self) -> None:
        """Once in a while."""
        self._notices.waits(f"the Spark session {self._app!r}", self.step)
        self._notices.tell_if_due()

    def __enter__(self) -> StartSteps:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        self.look()
        while not self._is_over.wait(_LOOK_SECONDS):
            self.look()
