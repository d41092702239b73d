"""The README's example is what a newcomer runs first, and then once more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_README = Path(__file__).parents[2] / "README.md"


@pytest.mark.cluster
@pytest.mark.timeout(240)
def test_the_example_runs_and_finds_its_data_when_it_runs_again(tmp_path: Path, ray_folder: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)
    (tmp_path / "example.py").write_text(example)
    for times in (1, 2):
        ran = subprocess.run(
            [sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False
        )
        assert ran.returncode == 0, ran.stderr
        # Ray may add that it has many workers, which it has.
        lines = [line for line in ran.stdout.splitlines() if "(raylet)" not in line]
        assert re.fullmatch(rf"written to partition \d at offset {2 * times - 1}", lines[0])
        records = [f"{offset} b'user-1' {(b'/home', b'/cart')[offset % 2]!r}" for offset in range(2 * times)]
        assert lines[1:] == records
