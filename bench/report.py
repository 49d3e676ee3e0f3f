"""Sections of `docs/benchmarks.md`: each benchmark writes its own, between markers."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by `make bench`, section by section; do not edit between the markers. Absolute figures vary from run
to run on a shared machine; ratios within a run are what counts.
"""


def machine() -> str:
    """What this runs on, and how busy it is."""
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next((x.partition(":")[2].strip() for x in cpuinfo.open() if x.startswith("model name")), "")
    load = os.getloadavg()[0]
    name = model or platform.processor()
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load:.1f} at the start"


def today() -> str:
    """The date, as reports have it."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def short(number: float) -> str:
    """A number with three significant digits."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.3g}{unit}"
    return f"{number:.3g}"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Put a section into the page: in place of the old one, or at the end."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    section = f"{begin}\n{text.strip()}\n{end}"
    old = page.read_text() if page.exists() else HEAD
    if begin not in old:
        page.write_text(old.rstrip() + f"\n\n{section}\n")
        return
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    page.write_text(pattern.sub(lambda _: section, old))
