"""The recipe of docs/pipeline.md: a standalone cluster from the wheel, with what the workers need packed."""

import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.pipeline.worlds import expected_pairs, quotes, subscriptions

import angelia
from angelia.pipeline.java import java_home
from angelia.store import LakeWriter

SPARK = Path(pyspark.__file__).parent


class Cluster:
    """A master and two workers on loopback."""

    def __init__(self, path):
        self.path = path
        self.processes = []
        self.environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self, name, *arguments):
        log = self.path / f"{name}.log"
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=self.environment, start_new_session=True
            )
        self.processes.append(process)
        return log

    def stop(self):
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)  # the group that was made for it
            process.wait()


def told(log, pattern, seconds=300):
    deadline = time.monotonic() + seconds
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.1)
    return found


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    deploy = "org.apache.spark.deploy"
    try:
        log = cluster.start(
            "master", f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        )
        port = told(log, r"Starting Spark master at spark://127\.0\.0\.1:(\d+)")[1]
        cluster.master = f"spark://127.0.0.1:{port}"
        for number in (1, 2):
            cluster.start(
                *(f"worker{number}", f"{deploy}.worker.Worker", "--cores", "1", "--memory", "512m"),
                *("--webui-port", "0", "--work-dir", str(tmp_path / f"work{number}"), cluster.master),
            )
        for number in (1, 2):
            told(tmp_path / f"worker{number}.log", "Successfully registered with master")
        yield cluster
    finally:
        cluster.stop()


def packed(path):
    """Our packages as an archive, with the kernels that are compiled already."""
    sources = Path(angelia.__file__).parent.parent
    with tarfile.open(path, "w:gz") as archive:
        for package in ("angelia", "pyspark_angelia"):
            archive.add(sources / package, package)
    return path


def test_match_runs_on_a_standalone_cluster_with_packed_dependencies(cluster, tmp_path):
    events, filters = quotes(200), subscriptions(20)
    with LakeWriter(tmp_path / "lake", "b1", background=False) as writer:
        for start in range(0, 200, 50):
            writer.append(events[start : start + 50])
            writer.roll()
    lines = (json.dumps({"id": i, "filter": f}) + "\n" for i, f in filters.items())
    (tmp_path / "subscriptions.jsonl").write_text("".join(lines))
    archive = packed(tmp_path / "angelia.tar.gz")
    arguments = (
        *("match", "--lake", tmp_path / "lake", "--subscriptions", tmp_path / "subscriptions.jsonl"),
        *("--out", tmp_path / "out", "--master", cluster.master),
        *("--conf", f"spark.archives={archive}#packed", "--conf", "spark.executorEnv.PYTHONPATH=packed"),
        *("--conf", "spark.executor.memory=512m"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "angelia", "pipeline", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env=cluster.environment,
    )
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert {(row["event_id"], row["subscription_id"]) for row in rows} == expected_pairs(events, filters)
    assert "200 events, 20 subscriptions" in done.stdout
    used = [
        path for number in (1, 2) for path in (tmp_path / f"work{number}").rglob("packed/angelia/matching")
    ]
    assert used  # by workers that had it unpacked
