"""Settings of Spark for running on Ray, on a Java 17, and on few cores. Decides; touches nothing.

What must stay true: a setting of the caller's wins, but for Java options, which are added to ours: without those
Spark and RayDP do not start at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Spark, Arrow and RayDP reach into these; Java 17 closes them.
_OPENED: Final = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)
JAVA_OPTIONS: Final = " ".join(
    [
        "-XX:+IgnoreUnrecognizedVMOptions",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Djdk.reflect.useDirectMethodHandle=false",
    ]
)
# The master asks for executors, and then waits: its second compiler would take a core at the start for nothing.
_MASTER_OPTIONS: Final = f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DRIVER: Final = "spark.driver.extraJavaOptions"
_EXECUTOR: Final = "spark.executor.extraJavaOptions"
_MASTER: Final = "spark.ray.raydp_app_master.extraJavaOptions"
_MASTER_RESOURCE: Final = "spark.ray.raydp_spark_master.actor.resource"
_TRACE: Final = "0.001"  # of a resource of which a node has 1

_DEFAULTS: Final[Mapping[str, str]] = {
    # RayDP's master asks Ray for a CPU to be placed by, which a small machine may not have beside the executors.
    f"{_MASTER_RESOURCE}.CPU": "0",
    "spark.python.daemon.module": "raylog.spark_bridge.sessions.worker_daemon",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def spark_settings(
    total_cores: int, ray_logs: str, given: Mapping[str, object], place_of_master: str = ""
) -> dict[str, str]:
    """All of them, as Spark wants them: text by name.

    `ray_logs`: where RayDP's Java in the driver logs. By itself it takes a link in Ray's folder, which may dangle.
    `place_of_master`: a resource of Ray's that only nodes have where RayDP's master can run; empty: all can.
    """
    settings = {
        **_DEFAULTS,
        **({f"{_MASTER_RESOURCE}.{place_of_master}": _TRACE} if place_of_master else {}),
        # Spark's 200 tasks for each shuffle take ten seconds on two cores, whatever is in them.
        "spark.sql.shuffle.partitions": str(max(2, total_cores)),
        **{name: _text(value) for name, value in given.items()},
    }
    for name, options in (
        (_DRIVER, f"{JAVA_OPTIONS} -Dray.logging.dir={ray_logs}"),
        (_EXECUTOR, JAVA_OPTIONS),
        (_MASTER, _MASTER_OPTIONS),
    ):
        settings[name] = f"{options} {settings.get(name, '')}".rstrip()
    return settings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
