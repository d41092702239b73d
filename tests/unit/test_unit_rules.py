"""The rules for unit tests bite: checked in this process, and in a pytest run over a few test files."""

import asyncio
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.unit.unit_rules import RAY_FORBIDDEN, SLEEP_FORBIDDEN, unit_rules

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["ray", "ray.util", "ray.cluster_utils"])
def test_ray_cannot_be_imported(module: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=RAY_FORBIDDEN):
        importlib.import_module(module)


def test_names_that_only_begin_with_ray_can_be_imported() -> None:
    importlib.import_module("raylog")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("ray_like_but_missing")


def test_ray_imported_earlier_is_hidden_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = ModuleType("ray")
    monkeypatch.setitem(sys.modules, "ray", earlier)
    with unit_rules(), pytest.raises(pytest.fail.Exception, match=RAY_FORBIDDEN):
        importlib.import_module("ray")
    assert sys.modules["ray"] is earlier


def test_time_cannot_be_slept_away() -> None:
    with pytest.raises(pytest.fail.Exception, match=SLEEP_FORBIDDEN):
        time.sleep(0.001)
    time.sleep(0)


def test_a_coroutine_cannot_sleep() -> None:
    async def sleeps(seconds: float) -> str:
        return await asyncio.sleep(seconds, "awake")

    with pytest.raises(pytest.fail.Exception, match=SLEEP_FORBIDDEN):
        asyncio.run(sleeps(0.001))
    assert asyncio.run(sleeps(0)) == "awake"


def test_tested_code_cannot_swallow_a_violation() -> None:
    assert not issubclass(pytest.fail.Exception, Exception)


def test_a_child_process_can_be_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.01)
        child.communicate(b"\n", timeout=60)
    assert child.returncode == 0


# The file names are in the order in which pytest meets them.
SAMPLE = {
    "ray/__init__.py": "",
    "a_cluster/test_uses_ray_and_sleeps.py": """
        import ray, time
        def test_passes(): time.sleep(0.001)
    """,
    "unit/conftest.py": """
        from tests.unit.conftest import _obey_unit_rules, pytest_make_collect_report
    """,
    "unit/naps.py": """
        from time import sleep
        def nap(): sleep(0.001)
    """,
    "unit/test_imports_ray_at_the_top.py": """
        try:
            import ray
        except Exception:
            pass
        def test_never_collected(): pass
    """,
    "unit/test_violates.py": """
        import pytest, warnings
        from unit.naps import nap
        @pytest.fixture(scope="module")
        def ray(): import ray
        def test_imports_ray_in_a_fixture(ray): pass
        def test_sleeps(): nap()
        def test_warns(): warnings.warn("something is deprecated", DeprecationWarning)
        def test_obeys(): pass
    """,
    "z_cluster/test_may_sleep_after_unit_tests.py": """
        import ray
        from unit.naps import nap
        def test_passes(): nap()
    """,
}


def test_rules_hold_while_collecting_and_running_and_only_for_unit_tests(tmp_path: Path) -> None:
    for name, text in SAMPLE.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(line.removeprefix(" " * 8) for line in text.splitlines()))
    run = subprocess.run(
        [
            *[sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rA"],
            *["-c", str(REPOSITORY / "pyproject.toml"), "--rootdir", str(tmp_path)],
            *["--continue-on-collection-errors", "a_cluster", "unit", "z_cluster"],
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])},
        capture_output=True,
        text=True,
        check=False,
    )

    def outcome(test: str) -> str:
        """The line of pytest's closing summary that names this test."""
        return [line for line in run.stdout.splitlines() if test in line][-1]

    assert outcome("test_uses_ray_and_sleeps.py::test_passes").startswith("PASSED")
    assert outcome("test_may_sleep_after_unit_tests.py::test_passes").startswith("PASSED")
    assert outcome("::test_obeys").startswith("PASSED")
    assert outcome("unit/test_imports_ray_at_the_top.py").startswith("ERROR")
    assert outcome("::test_imports_ray_in_a_fixture").startswith("ERROR")
    assert outcome("::test_sleeps").startswith("FAILED")
    assert outcome("::test_warns").startswith("FAILED")
    assert "2 failed, 3 passed, 2 errors" in run.stdout
    assert RAY_FORBIDDEN in run.stdout
    assert SLEEP_FORBIDDEN in run.stdout
