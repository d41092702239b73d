"""The programs in `examples/`, as somebody runs them who has no cluster yet, and then once more."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_EXAMPLES = _ROOT / "examples"


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_read_process_write_makes_one_receipt_of_each_order(tmp_path: Path, ray_folder: Path) -> None:
    for times in (1, 2):
        ran = subprocess.run(
            [sys.executable, str(_EXAMPLES / "read_process_write.py")],
            cwd=tmp_path, capture_output=True, text=True, timeout=140, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
        found = [line for line in ran.stdout.splitlines() if line.startswith("b'customer")]
        orders = {f"b'customer {number % 5}' b'ORDER {number}'" for number in range(30)}
        assert Counter(found) == dict.fromkeys(orders, times)
        for customer in range(5):
            mine = [line for line in found if f"customer {customer}" in line]
            assert mine == [f"b'customer {customer}' b'ORDER {each}'" for each in range(customer, 30, 5)] * times


@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_a_payment_is_booked_once_although_its_consumer_crashed(ray_folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.unique_key_consumer"],
        cwd=_ROOT, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert set(ran.stdout.splitlines()) >= {
        "booked 1000, skipped 0, and crashed before the commit",
        "booked 0, skipped 1000",
        "balances are right",
    }
