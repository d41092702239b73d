"""Writing of a checkpoint's small files where it is on a disk.

Spark writes three of them for each micro-batch, and we a fourth, through Hadoop's FileContext: on a disk that starts
six processes for each file (`chmod` twice, `readlink` four times), a fifth of what an empty micro-batch takes. By
Hadoop's FileSystem it is two.

What must stay true: only on a disk. There both ways look whether a file is there and then rename; elsewhere
FileContext's rename is the one that refuses to replace a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
BY_FILE_SYSTEM: Final = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
_DISK: Final = "file"


def choose_file_manager(spark: SparkSession, path: str) -> None:
    """Choose the file manager for the queries that this session starts from now on, of which this is the checkpoint.

    What the caller has chosen stays.
    """
    jvm: Any = spark._jvm
    chosen = spark.conf.get(SETTING, None)
    configuration = spark._jsparkSession.sessionState().newHadoopConf()
    is_on_disk = jvm.org.apache.hadoop.fs.Path(path).getFileSystem(configuration).getUri().getScheme() == _DISK
    if is_on_disk and chosen is None:
        spark.conf.set(SETTING, BY_FILE_SYSTEM)
    elif not is_on_disk and chosen == BY_FILE_SYSTEM:
        spark.conf.unset(SETTING)
