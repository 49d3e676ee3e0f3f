"""The recipe of docs/pipeline.md: a standalone cluster, with all that the workers need packed."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

import pyarrow.parquet as pq
import pyspark
import pytest
from tests.pipeline.worlds import expected_pairs, quotes, subscriptions

import angelia
from angelia.pipeline.java import java_home
from angelia.store import LakeWriter

SPARK = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]


class Cluster:
    """A master and two workers on loopback."""

    def __init__(self, path):
        self.path = path
        self.processes = []
        self.environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}

    def start(self, name, *arguments):
        log = self.path / f"{name}.log"
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        environment = {name: text for name, text in self.environment.items() if name != "PYTHONPATH"}
        with log.open("wb") as file:
            process = subprocess.Popen(
                command, stdout=file, stderr=file, env=environment, start_new_session=True
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


def built_wheel(folder):
    """Our package, as it is published."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([*pip, "wheel", *options, "--wheel-dir", folder, ROOT], check=True, timeout=120)
    (wheel,) = folder.glob("angelia-*.whl")
    return wheel


def dependencies(*names):
    """Distributions with all that they need, as `pip install` would fetch them."""
    found = {}
    for name in names:
        waiting = [name]
        while waiting:
            key = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
            if key in found:
                continue
            try:
                found[key] = distribution(key)
            except PackageNotFoundError:  # for other systems
                continue
            needed = [text for text in found[key].requires or () if "extra ==" not in text]
            waiting += [re.match(r"[\w.-]+", text)[0] for text in needed]
    return found.values()


def packed(folder, archive):
    """What `pip install --target folder 'wheel[match]'` gives, as an archive."""
    with ZipFile(built_wheel(folder.parent)) as wheel:
        wheel.extractall(folder)
    sources = Path(angelia.__file__).parent.parent
    for source in (sources / "angelia" / "matching").rglob("*"):  # with the compiled kernels
        if source.suffix in (".py", ".nbi", ".nbc"):
            target = folder / source.relative_to(sources)
            target.parent.mkdir(exist_ok=True)
            shutil.copy2(source, target)
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(folder, ".")
        for each in dependencies("msgspec", "google-re2", "typer", "numpy", "numba", "pyarrow"):
            for file in each.files:
                path = Path(each.locate_file(file))
                if path.is_file() and not {"..", "tests", "include", "__pycache__"} & set(file.parts):
                    tar.add(path, str(file))
    return archive


def test_match_runs_on_a_standalone_cluster_with_packed_dependencies(cluster, tmp_path):
    events, filters = quotes(200), subscriptions(20)
    with LakeWriter(tmp_path / "lake", "b1", background=False) as writer:
        for start in range(0, 200, 50):
            writer.append(events[start : start + 50])
            writer.roll()
    lines = (json.dumps({"id": i, "filter": f}) + "\n" for i, f in filters.items())
    (tmp_path / "subscriptions.jsonl").write_text("".join(lines))
    archive = packed(tmp_path / "packed", tmp_path / "packed.tar.gz")
    bare = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    checked = "import importlib.util as u; assert not any(map(u.find_spec, ('angelia', 'pyarrow', 'numba')))"
    subprocess.run([bare, "-I", "-c", checked], check=True)  # workers have nothing but what is packed
    arguments = (
        *("match", "--lake", tmp_path / "lake", "--subscriptions", tmp_path / "subscriptions.jsonl"),
        *("--out", tmp_path / "out", "--master", cluster.master),
        *("--conf", f"spark.archives={archive}#packed", "--conf", "spark.executorEnv.PYTHONPATH=packed"),
        *("--conf", f"spark.pyspark.python={bare}", "--conf", "spark.executor.memory=512m"),
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
    for number in (1, 2):
        shutil.rmtree(tmp_path / f"work{number}")  # half a gigabyte each
