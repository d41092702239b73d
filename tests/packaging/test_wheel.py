"""The wheel as a user gets it: built from the sdist, installed in a fresh environment, used elsewhere."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.packaging.pins import pinned_versions

pytestmark = [pytest.mark.packaging, pytest.mark.timeout(900)]  # the first install downloads Ray

REPOSITORY = Path(__file__).parents[2]
CONSTRAINTS = REPOSITORY / "constraints.txt"

# Module (or package) of raylog -> what it needs that only an extra installs.
NEEDS_EXTRA = {
    "raylog.api.consumer.rules.arrow_poll": "pyarrow",
    "raylog.api.data.avro_values": "pyarrow",
    "raylog.api.data.each_value": "pyarrow",
    "raylog.api.data.protobuf_values": "pyarrow",
    "raylog.api.data.record_tables": "pyarrow",
    "raylog.api.data.topic_datasink": "pyarrow",
    "raylog.api.data.topic_datasource": "pyarrow",
    "raylog.api.data.topic_read": "pyarrow",
    "raylog.api.data.value_decoders": "pyarrow",
    "raylog.api.jobs.range_reader": "pyarrow",
    "raylog.api.jobs.row_sending": "pyarrow",
    "raylog.api.jobs.rules.row_schema": "pyarrow",
    "raylog.api.producer.arrow_send": "pyarrow",
    "raylog.api.producer.rules.arrow_split": "pyarrow",
    "raylog.api.workloads.kafka_driver": "aiokafka",
    "raylog.api.workloads.nats_driver": "nats",
    "raylog.api.workloads.redis_driver": "redis",
    "raylog.spark_bridge.writing.batch_write": "pyarrow",
    "raylog.spark_bridge.writing.family_write": "pyarrow",
    "raylog.spark_bridge.writing.stream_write": "pyarrow",
    "raylog.spark_bridge.writing.task_writer": "pyarrow",
    "raylog.storage.format.arrow_columns": "pyarrow",
}

# Nothing that a replica's storage needs may pull these in: they cost memory in every replica process.
NOT_IN_A_REPLICA = ["asyncio", "numpy", "pandas", "pyarrow", "ray"]


class Built(NamedTuple):
    sdist: Path
    wheel: Path

    def wheel_names(self) -> list[str]:
        with zipfile.ZipFile(self.wheel) as archive:
            return archive.namelist()

    def modules(self) -> list[str]:
        """Every module of the wheel, by its import name."""
        names = [name.removesuffix(".py") for name in self.wheel_names() if name.endswith(".py")]
        return sorted(name.removesuffix("/__init__").replace("/", ".") for name in names)


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Runs a command to its end and returns what it printed; a failing one fails the test with its output."""
    ended = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.fail(f"{command} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def outside_env() -> dict[str, str]:
    """The environment without what would let the repository be found."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "MYPYPATH", "VIRTUAL_ENV"}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def run_pip(python: Path, *arguments: str | Path) -> str:
    """Runs the pip of this environment on the environment of another interpreter, which needs none."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    return run(*pip, *arguments, cwd=python.parent, env=outside_env())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of a clean copy of the sources, and the wheel made from that sdist."""
    source = tmp_path_factory.mktemp("source") / "raylog"
    not_source = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    shutil.copytree(REPOSITORY, source, symlinks=True, ignore=not_source)
    out = tmp_path_factory.mktemp("dist")
    env = outside_env() | {"PIP_CONSTRAINT": str(CONSTRAINTS)}
    run(sys.executable, "-m", "build", "--outdir", out, source, cwd=out, env=env)
    (sdist,) = out.glob("*.tar.gz")
    (wheel,) = out.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def fresh_python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel, its base dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    run_pip(python, "install", "--quiet", "--no-compile", "-c", CONSTRAINTS, built.wheel)
    return python


def imports(python: Path, modules: Sequence[str], *, then: str, cwd: Path) -> str:
    """Imports the modules in a process that starts in the empty folder `cwd` and has no settings."""
    program = "\n".join([*(f"import {module}" for module in modules), then])
    return run(python, "-c", program, cwd=cwd, env={"PATH": os.defpath, "HOME": str(cwd)}).strip()


def needs_extra(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in NEEDS_EXTRA)


def source_files() -> set[str]:
    """The package's files in the repository, reached through the symlinks, by their path in the wheel."""
    found: set[str] = set()
    for folder, _, files in os.walk(REPOSITORY / "raylog", followlinks=True):
        names = [Path(folder, file).relative_to(REPOSITORY) for file in files]
        found |= {str(name) for name in names if name.suffix == ".py" or name.name == "py.typed"}
    return found


def test_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    names = built.wheel_names()
    metadata = f"{built.wheel.name.rsplit('-', 3)[0]}.dist-info"
    assert {name.split("/")[0] for name in names} == {"raylog", metadata}
    assert {name for name in names if name.startswith("raylog/")} == source_files()
    assert {"raylog/py.typed", "raylog/storage/__init__.py"} <= set(names)
    assert f"{metadata}/licenses/LICENSE" in names


def test_sdist_holds_the_folders_as_files_under_raylog(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        members = {member.name.split("/", 1)[-1]: member for member in archive.getmembers()}
    assert source_files() <= {name for name, member in members.items() if member.isfile()}
    assert "LICENSE" in members
    assert [name for name in members if name.startswith("storage/")] == []


def test_every_module_imports_from_an_empty_folder(built: Built, fresh_python: Path, tmp_path: Path) -> None:
    modules = [module for module in built.modules() if not needs_extra(module)]
    where = imports(fresh_python, modules, then="print(raylog.__file__)", cwd=tmp_path)
    assert Path(where).is_relative_to(fresh_python.parents[1])


@pytest.mark.parametrize(("module", "extra"), NEEDS_EXTRA.items())
def test_module_of_an_extra_says_what_is_missing(
    module: str, extra: str, built: Built, fresh_python: Path, tmp_path: Path
) -> None:
    if module not in built.modules():
        pytest.skip(f"{module} does not exist yet")
    program = f"try:\n import {module}\nexcept ModuleNotFoundError as error:\n print(error.name)"
    assert imports(fresh_python, [], then=program, cwd=tmp_path) in ("", extra)


def test_the_command_is_installed(fresh_python: Path, tmp_path: Path) -> None:
    assert run(fresh_python.with_name("raylog"), "--version", cwd=tmp_path).startswith("raylog ")
    assert "topic" in run(fresh_python.with_name("raylog"), "--help", cwd=tmp_path)


def test_storage_stays_lean(built: Built, fresh_python: Path, tmp_path: Path) -> None:
    plain = [module for module in built.modules() if not needs_extra(module)]
    storage = [module for module in plain if module.startswith("raylog.storage")]
    loaded = imports(fresh_python, ["sys", *storage], then="print(*sys.modules)", cwd=tmp_path).split()
    assert set(loaded) & set(NOT_IN_A_REPLICA) == set()


def test_no_folder_is_importable_under_its_bare_name(fresh_python: Path, tmp_path: Path) -> None:
    folders = sorted(entry.name for entry in (REPOSITORY / "raylog").iterdir() if entry.is_symlink())
    assert "storage" in folders
    found = f"print([name for name in {folders} if importlib.util.find_spec(name)])"
    assert imports(fresh_python, ["importlib.util"], then=found, cwd=tmp_path) == "[]"


def test_installed_versions_are_the_pinned_ones(fresh_python: Path) -> None:
    listed = json.loads(run_pip(fresh_python, "list", "--format", "json"))
    pinned = pinned_versions(CONSTRAINTS)
    others = {each["name"]: each["version"] for each in listed if each["name"] != "raylog"}
    assert {name: pinned.get(name.lower().replace("_", "-")) for name in others} == others


def test_users_strict_mypy_sees_the_types(built: Built, fresh_python: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    imported = "\n".join(f"import {module}" for module in built.modules())
    program.write_text(f"{imported}\nversion: str = raylog.__version__\nwrong: int = raylog.__version__\n")
    mypy = subprocess.run(
        [
            *[sys.executable, "-m", "mypy", "--strict", "--config-file="],
            *["--python-executable", str(fresh_python), str(program)],
        ],
        cwd=tmp_path,
        env=outside_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in mypy.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, mypy.stdout + mypy.stderr
    assert "[assignment]" in errors[0]
