"""What a unit test may not do: import Ray, or sleep.

Within `unit_rules()`:

- importing `ray`, or anything below it, fails, also where it was imported before; so nothing can start it;
- `time.sleep` and `asyncio.sleep` fail for more than 0 seconds, also where a module that a unit test was the
  first to import bound them with `from time import sleep`.

A failure is `pytest.fail`, whose exception does not derive from `Exception`: neither `except ImportError` nor
`except Exception` in the tested code can swallow it. Outside of `unit_rules()` all is as it was, so that one
process can run unit tests and cluster tests one after the other.

One caller may sleep: `subprocess`, which polls with short sleeps when it waits for a child with a time-out. And on
the simulator's loops `asyncio.sleep` costs virtual time only, so there it is let pass.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import pytest

from tests.simulator.world.virtual_loop import VirtualLoop

RAY_FORBIDDEN = "a unit test may not import ray"
SLEEP_FORBIDDEN = "a unit test may not sleep"

_real_time_sleep = time.sleep
_real_asyncio_sleep = asyncio.sleep
_in_force = False


def _is_ray(module: str) -> bool:
    return module == "ray" or module.startswith("ray.")


class _RayForbidden(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _is_ray(fullname):
            pytest.fail(
                f"{RAY_FORBIDDEN} (here: {fullname}). Put the decision into a module without Ray and test "
                "that, or move the test to tests/cluster."
            )
        return None


def _fail_sleep(function: str, seconds: float) -> NoReturn:
    pytest.fail(f"{SLEEP_FORBIDDEN} (here: {function}({seconds!r})). Pass the time in as an argument.")


def _time_sleep(seconds: float, /) -> None:
    if _in_force and seconds > 0 and sys._getframe(1).f_globals.get("__name__") != "subprocess":
        _fail_sleep("time.sleep", seconds)
    _real_time_sleep(seconds)


def _asyncio_sleep(delay: float, result: Any = None) -> Awaitable[Any]:
    if _in_force and delay > 0 and not isinstance(asyncio.get_running_loop(), VirtualLoop):
        _fail_sleep("asyncio.sleep", delay)
    return _real_asyncio_sleep(delay, result)


@contextmanager
def unit_rules() -> Iterator[None]:
    global _in_force  # noqa: PLW0603 (what it replaces, `time.sleep` and the import system, is global too)
    was_in_force, _in_force = _in_force, True
    finder = _RayForbidden()
    with pytest.MonkeyPatch.context() as patch:
        for module in filter(_is_ray, list(sys.modules)):
            patch.delitem(sys.modules, module)
        patch.setattr(time, "sleep", _time_sleep)
        patch.setattr(asyncio, "sleep", _asyncio_sleep)
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            _in_force = was_in_force
