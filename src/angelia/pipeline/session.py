"""Spark sessions. Entry points make one; everything else takes data frames and returns data frames."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from angelia.pipeline.errors import PipelineError
from angelia.pipeline.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["DEFAULTS", "open_session", "parse_conf"]

DEFAULTS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # events are in UTC, and so are the days of a lake
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # which says so to other readers, too
    "spark.sql.caseSensitive": "true",  # as attributes are
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",  # what the matcher encodes at once
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",  # we have a bar of our own
}
LOCAL: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_COUNTING = "org.apache.datasketches.memory.internal.ResourceImpl"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def open_session(
    master: str | None = None, conf: Mapping[str, str] | None = None, name: str = "angelia"
) -> SparkSession:
    """A session on all cores of this machine, or on `master`; `conf` comes before our defaults.

    Without `master`, that of `conf` or of Spark's own configuration counts, and else `local[*]`.
    """
    try:
        from pyspark.conf import SparkConf
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ModuleNotFoundError as error:
        raise PipelineError(f"the pipeline needs {error.name}: pip install 'angelia[pipeline]'") from None
    given = dict(conf or {})
    os.environ["JAVA_HOME"] = str(java_home())
    where = master or given.get("spark.master") or os.environ.get("MASTER") or "local[*]"
    is_local = where.startswith("local")
    if is_local or "spark.pyspark.python" not in given:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {**DEFAULTS, **(LOCAL if is_local else {}), **given}
    settings[_JAVA_OPTIONS] = f"-Dlog4j2.configurationFile={_LOGGING} {settings.get(_JAVA_OPTIONS, '')}"
    spark_conf = SparkConf().setMaster(where).setAppName(name).setAll(list(settings.items()))
    try:
        session = SparkSession.builder.config(conf=spark_conf).getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise PipelineError(f"Spark did not start on {where}: {_first_line(error)}") from None
    if is_local:
        _hush(session)
    return session


def _hush(session: SparkSession) -> None:
    """Load a library that counts values, which tells each time that it keeps to the heap, to nobody."""
    from py4j.protocol import Py4JError

    java = session.sparkContext._jvm.java  # type: ignore[union-attr]
    kept = java.lang.System.err
    try:
        java.lang.System.setErr(java.io.PrintStream(java.io.OutputStream.nullOutputStream()))
        with suppress(Py4JError):  # a Spark that has it no more
            java.lang.Class.forName(_COUNTING)
    finally:
        java.lang.System.setErr(kept)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def parse_conf(texts: list[str]) -> dict[str, str]:
    """Settings given as `key=value`."""
    settings = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise PipelineError(f"write a setting of Spark as key=value, not {text!r}")
        settings[key.strip()] = value.strip()
    return settings
