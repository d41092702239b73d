"""`import raylog` brings the public names, and none of what they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

import raylog


def test_what_an_editor_offers_is_what_is_public() -> None:
    assert dir(raylog) == sorted(raylog.__all__)


def test_errors_can_be_caught_after_a_plain_import() -> None:
    program = (
        "import raylog\n"
        "try: raise raylog.errors.UnknownTopic('clicks')\n"
        "except raylog.RaylogError as error: print(type(error) is raylog.UnknownTopic)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert found.stdout == "True\n"


def test_each_public_error_is_one_of_the_tree() -> None:
    exported = [name for name in raylog.__all__ if hasattr(raylog.errors, name)]
    assert {"RaylogError", "UnknownTopic", "ProducerFenced", "WakeupError"} <= set(exported)
    assert all(issubclass(getattr(raylog, name), raylog.RaylogError) for name in exported)


def test_names_of_other_libraries_say_what_it_is_here() -> None:
    with pytest.raises(AttributeError, match=r"here it is raylog\.Producer, see docs/coming-from-kafka\.md"):
        getattr(raylog, "KafkaProducer")  # noqa: B009


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="'raylog' has no attribute 'strat'"):
        getattr(raylog, "strat")  # noqa: B009


def test_a_face_of_a_package_has_its_names_and_no_others() -> None:
    assert dir(raylog.data) == sorted(raylog.data.__all__)
    assert raylog.data.Timestamp(1).ms == 1
    with pytest.raises(AttributeError, match=r"'raylog\.data' has no attribute 'raed'$"):
        getattr(raylog.data, "raed")  # noqa: B009


def test_importing_it_imports_neither_ray_nor_asyncio() -> None:
    program = "import raylog, sys; print([name for name in ('ray', 'asyncio', 'msgpack') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"
