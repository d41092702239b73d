"""The settings of Ray Data for tests: no progress bars, and its warnings of its own settings stay unheard."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="the extra `data` is not installed")
pytest.importorskip("pyarrow", reason="the extra `data` is not installed")


@pytest.fixture(scope="package", autouse=True)
def quiet_datasets(process_ray: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray.data

        context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
