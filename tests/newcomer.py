"""The first steps of somebody new: clone, `make demo`, `make test`, with nothing set up and nothing typed in between.

    python -m tests.newcomer [TARGET ...]

The clone is of this checkout's last commit, in a folder that is removed afterwards. Of the environment it gets PATH and
HOME, and what says how this machine reaches the world. It ends with the first target that fails, and its code.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_TARGETS: Final = ("demo", "test")
_KEPT: Final = ("PATH", "HOME")
_WAYS_OUT: Final = ("PIP_", "SSL_CERT_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")  # also in small letters
_END_SECONDS: Final = 30.0


def main(targets: Sequence[str], root: Path = ROOT) -> int:
    folder = Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        return _go_through(targets or _TARGETS, root, folder / "raylog")
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _go_through(targets: Sequence[str], root: Path, clone: Path) -> int:
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    if changed:
        _tell("without what is changed here and not committed")
    steps = [("git clone", ["git", "clone", "--quiet", str(root), str(clone)], root)]
    steps += [(f"make {target}", ["make", target], clone) for target in targets]
    took: list[str] = []
    for name, command, folder in steps:
        _tell(name)
        began = time.monotonic()
        code = _run(command, folder, clean(os.environ))
        took.append(f"{name:<12} {_in_words(time.monotonic() - began)}{f', failed with {code}' if code else ''}")
        if code:
            break
    _tell("\n".join([f"{_git(root, 'rev-parse', '--short', 'HEAD')}:", *took]))
    return code


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in _KEPT or name.upper().startswith(_WAYS_OUT)}


def _run(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> int:
    """Run it in a session of its own, so that a Ctrl-C here ends all of it before the folder goes."""
    process = subprocess.Popen(
        command, cwd=folder, env=dict(environment), stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def _in_words(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def _tell(text: str) -> None:
    sys.stdout.write(f"--- {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
