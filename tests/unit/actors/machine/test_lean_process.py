"""The mark of a lean actor: it forbids large libraries in a worker of Ray, and nothing in a driver."""

from __future__ import annotations

import sys

import pytest

from raylog.actors.machine.lean_process import forbid_large_libraries

_LIBRARIES = ("numpy", "pandas", "pyarrow")


@pytest.mark.parametrize(
    ("program", "forbidden"),
    [("/usr/lib/ray/_private/workers/default_worker.py", True), ("job.py", False), ("", False), ("-c", False)],
)
def test_only_workers_of_ray_go_without_large_libraries(
    monkeypatch: pytest.MonkeyPatch, program: str, forbidden: bool
) -> None:
    """A driver that asks Ray for an actor by its name gets the class, and with it the mark."""
    for name in _LIBRARIES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "argv", [program])
    forbid_large_libraries()
    assert [name for name in _LIBRARIES if name in sys.modules] == (list(_LIBRARIES) if forbidden else [])
    for name in _LIBRARIES:
        sys.modules.pop(name, None)
