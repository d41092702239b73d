"""`import raylog` brings the public names, and none of what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import raylog


def test_the_public_names_are_there_before_they_are_used() -> None:
    assert set(raylog.__all__) <= set(dir(raylog))


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="'raylog' has no attribute 'strat'"):
        raylog.strat  # noqa: B018


def test_importing_it_imports_neither_ray_nor_asyncio() -> None:
    program = "import raylog, sys; print([name for name in ('ray', 'asyncio', 'msgpack') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
