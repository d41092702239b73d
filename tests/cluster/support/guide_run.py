"""A page of docs/guides/, typed as it stands: files are saved, commands are run, and what they print is compared.

    ```python            a file; its first line names it: `# worker.py`
    ```sh                commands, in the folder of the guide
    ```text              what the commands before it print on stdout; `…` stands for anything

An `…` on a line by itself stands for any number of lines.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

GUIDES: Final = Path(__file__).parents[3] / "docs" / "guides"
_FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE_NAME: Final = re.compile(r"# (\w+\.py)\n")
_ANY: Final = "…"
_SECONDS: Final = 120.0


class Block(NamedTuple):
    """A block of code of a page."""

    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a page, in their order. ValueError: one is of no known language, or a file has no name."""
    blocks = [Block(*found) for found in _FENCE.findall(text)]
    for block in blocks:
        if block.language not in ("python", "sh", "text"):
            raise ValueError(f"A guide has no blocks of {block.language!r}.")
        if block.language == "python" and not _FILE_NAME.match(block.text):
            raise ValueError(f"The first line of this block does not name its file:\n{block.text}")
    return blocks


def section_of(text: str, heading: str) -> str:
    """Return what stands under this heading of the second level."""
    _, sign, rest = text.partition(f"\n## {heading}\n")
    if not sign:
        raise ValueError(f"There is no heading {heading!r}.")
    return rest.partition("\n## ")[0]


def prints(expected: str, printed: str) -> bool:
    """Whether a block of text describes what was printed."""
    lines = expected.rstrip("\n").split("\n")
    patterns = [r"(?:.*\n)*" if line == _ANY else ".*".join(map(re.escape, line.split(_ANY))) + "\n" for line in lines]
    text = printed if printed.endswith("\n") else printed + "\n"
    return re.fullmatch("".join(patterns), text) is not None


class GuideRun:
    """Types pages in one folder. `environment` is added to that of this process."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {**os.environ, "PATH": path, **environment}

    def type(self, text: str) -> list[str]:
        """Do what a page or a section says. Return what each block of commands has printed on stdout."""
        printed: list[str] = []
        for block in blocks_of(text):
            if block.language == "python":
                self._save(block.text)
            elif block.language == "sh":
                printed.append(self.run(block.text))
            else:
                assert prints(block.text, printed[-1]), f"expected:\n{block.text}\nprinted:\n{printed[-1]}"
        return printed

    def _save(self, text: str) -> None:
        name = _FILE_NAME.match(text)
        assert name is not None
        (self.folder / name[1]).write_text(text)

    def run(self, commands: str) -> str:
        """Run commands in the folder. Return what they print on stdout; AssertionError: one fails."""
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder, env=self._environment, capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, f"{commands}\nended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}"
        return ran.stdout
