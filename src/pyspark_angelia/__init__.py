"""Registers the data source `angelia` with Spark, which looks for modules named `pyspark_…`."""

from angelia.pipeline.source import AngeliaSource as DefaultSource

__all__ = ["DefaultSource"]
