"""The folder of a source's descriptors, through Hadoop's file system: on a disk, hdfs or s3, as Spark's checkpoint is.

What must stay true:
- A descriptor is there whole or not at all, and one number is written once, whoever tries.
- Modification times rise with the numbers, since Spark takes files in their order.
- The newest is never deleted: it is where the stream is.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

from raylog.errors import CheckpointDamaged, CheckpointInUse
from raylog.spark_bridge.reading.rules.stream_plan import Descriptor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = re.compile(r"(\d{10})\.txt")
_CLOCK_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.02


def file_name(number: int) -> str:
    return f"{number:010d}.txt"


class DescriptorFolder:
    """Blocks, as all that goes through Spark's Java does."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        given = jvm.org.apache.hadoop.fs.Path(path)
        self._files = given.getFileSystem(configuration)
        self._path = self._files.makeQualified(given)
        self._files.mkdirs(self._path)
        streaming = jvm.org.apache.spark.sql.execution.streaming
        self._atomic = streaming.CheckpointFileManager.create(self._path, configuration)
        self.path: str = self._path.toString()
        self._last_time = 0

    def numbers(self) -> list[int]:
        """Return the numbers of those that are there, rising. CheckpointDamaged."""
        found = {}
        for status in self._files.listStatus(self._path):
            name = _NAME.fullmatch(status.getPath().getName())
            if name is not None:
                found[int(name[1])] = int(status.getModificationTime())
        numbers = sorted(found)
        if numbers and numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise CheckpointDamaged(self.path, "some of its files are missing")
        self._last_time = max(found.values(), default=0)
        return numbers

    def read(self, number: int) -> Descriptor:
        """Raises CheckpointDamaged."""
        path = self._place(number)
        stream = self._files.open(path)
        try:
            data = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return Descriptor.parse(path.toString(), bytes(data).decode(errors="replace"))

    def create(self, descriptor: Descriptor) -> None:
        """Raises CheckpointInUse: there is one with this number."""
        from py4j.protocol import Py4JJavaError

        path = self._place(descriptor.number)
        stream = self._atomic.createAtomic(path, False)
        try:
            stream.write(bytearray(descriptor.to_text().encode()))
            stream.close()
        except Py4JJavaError as error:
            stream.cancel()
            if self._files.exists(path):
                raise CheckpointInUse(self.path) from error
            raise
        self._last_time = self._put_in_order(path)

    def delete(self, number: int) -> None:
        self._files.delete(self._place(number), False)

    def _put_in_order(self, path: Any) -> int:
        """Return the file's modification time, made later than the last one's where it is not."""
        deadline = time.monotonic() + _CLOCK_SECONDS
        while (at := int(self._files.getFileStatus(path).getModificationTime())) <= self._last_time:
            self._files.setTimes(path, self._last_time + 1, -1)
            if time.monotonic() > deadline:  # a file system without times that can be set, and a clock that went back
                raise CheckpointDamaged(self.path, "its file system gives no rising modification times")
            time.sleep(_LOOK_AGAIN_SECONDS)
        return at

    def _place(self, number: int) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, file_name(number))
