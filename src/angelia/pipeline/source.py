"""The data source `angelia`: lakes and brokers as data frames, in batch and as streams.

    spark.read.format("angelia").option("lake", "lake").option("type", "flights.Departure")
        .option("filter", 'origin = "JFK" and dep_delay > 60').load()

Filters and times are options, not Spark's own filters: these are not pushed down to Python reliably. What
they exclude is not read: folders by type and day, row groups by their statistics; the exact answer is the
engine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from angelia.pipeline.errors import PipelineError
from angelia.pipeline.options import READING, WRITING, Query, known_options, query_of
from angelia.pipeline.pieces import Piece, pieces, read_piece

__all__ = ["AngeliaSource", "arrow_schema", "partitions_of"]


class AngeliaSource(DataSource):
    """What Spark knows as format `angelia`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "angelia"

    def schema(self) -> StructType:
        """The columns of a type and its descendants in the lake; of a broker, the context and `@rest`."""
        known_options(self.options, READING)
        if "broker" in self.options:
            from angelia.pipeline.live import SCHEMA

            return from_arrow_schema(SCHEMA)
        query = query_of(self.options)
        return from_arrow_schema(query.open().schema(query.type))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of what is in the lake now."""
        known_options(self.options, READING)
        if "broker" in self.options:
            raise PipelineError("a broker is read as a stream: use readStream, or read its lake")
        return LakeReader(query_of(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of what comes into a lake, or of what a broker notifies."""
        known_options(self.options, READING)
        if "broker" in self.options:
            from angelia.pipeline.live import BrokerStream

            return BrokerStream(self.options, schema)
        from angelia.pipeline.following import LakeStream

        return LakeStream(query_of(self.options), schema, self.options.get("maxfilespertrigger"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer to a lake or a broker."""
        from angelia.pipeline.sinks import batch_writer

        known_options(self.options, WRITING)
        if overwrite:
            raise PipelineError('events are appended: use mode("append")')
        return batch_writer(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The same for a stream."""
        from angelia.pipeline.sinks import stream_writer

        known_options(self.options, WRITING)
        return stream_writer(self.options, schema)


class LakeReader(DataSourceReader):
    """A batch read of a lake: what there was when it was planned."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self._query, self._schema = query, schema

    def partitions(self) -> Sequence[InputPartition]:
        """One a task."""
        snapshot = self._query.snapshot()
        return partitions_of(pieces(snapshot.files, snapshot.segments)) or [InputPartition(Piece())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a piece."""
        return read_piece(self._query, partition.value, arrow_schema(self._schema))


def partitions_of(work: Iterable[Piece]) -> list[InputPartition]:
    """One partition a piece."""
    return [InputPartition(piece) for piece in work]


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of Spark's columns: timestamps in UTC, strings plain."""
    return to_arrow_schema(schema, timezone="UTC")
