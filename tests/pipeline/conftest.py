"""One Spark session for all tests of the pipeline."""

import pytest
from pyspark.sql import SparkSession

from angelia.pipeline.session import open_session

FAST = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    session = open_session("local[2]", FAST, "angelia-tests")
    yield session
    session.stop()
