"""What the event lake costs: appending, rolling, reading, importing. Prints JSON.

    .venv/bin/python bench/lake.py [--events 200000] [--import-rows 1000000]

The baseline, in the same run, is what one would do without it: JSON lines in a file, with fsync as often.
Times are of the wall clock, since disks are what is measured; `cpu` tells what the processor did of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from angelia import Event, EventType, TypeRegistry
from angelia.event import format_timestamp
from angelia.store import Lake, LakeWriter, Limits
from angelia.store.importer import Naming, import_file
from angelia.store.segment import encode_event

START = datetime(2026, 1, 1, tzinfo=UTC)
TYPE = EventType(
    "bench.Departure",
    {"origin": "string", "dest": "string", "carrier": "string", "flight": "integer", "dep_delay": "float?"},
)
PLACES = ["JFK", "LGA", "EWR", "ORD", "DEN", "SFO", "ATL", "BOS"]
BATCH = 100


def event(n: int) -> Event:
    """A departure, a fifth of a second after the one before."""
    return Event(
        {
            "origin": PLACES[n % 3],
            "dest": PLACES[n * 7 % 8],
            "carrier": "UA" if n % 5 else "AA",
            "flight": n % 4000,
            "dep_delay": (n * 37 % 1000) / 10,
        },
        type="bench.Departure",
        source="bench",
        id=f"bench-{n}",
        time=START + timedelta(milliseconds=200 * n),
    )


def timed(work: Callable[[], Any], count: int) -> dict[str, float]:
    """Events a second of some work, by the clock and of the processor."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"events_per_s": round(count / wall), "events_per_cpu_s": round(count / max(cpu, 1e-9))}


def json_lines(path: Path, batches: list[list[Event]], sync: bool) -> None:
    """The baseline."""
    with open(path, "w") as file:
        for batch in batches:
            for each in batch:
                context = {"@id": each.id, "@type": each.type, "@source": each.source}
                at = {"@time": format_timestamp(each.time)}  # type: ignore[arg-type]
                file.write(json.dumps(context | at | dict(each.attributes)) + "\n")
            file.flush()
            if sync:
                os.fsync(file.fileno())


def appended(root: Path, batches: list[list[Event]], fsync: str, encoded: bool) -> dict[str, float]:
    """Append batches, and do not roll them."""
    shutil.rmtree(root / "append", ignore_errors=True)
    limits = Limits(size=1 << 40, rows=1 << 40, age=1e9)
    writer = LakeWriter(
        root / "append",
        "b1",
        TypeRegistry([TYPE]),
        fsync=fsync,  # type: ignore[arg-type]
        limits=limits,
        background=fsync == "interval",
    )
    ready = [[encode_event(each) for each in batch] for batch in batches] if encoded else []

    def work() -> None:
        for batch in batches if not encoded else ():
            writer.append(batch)
        for lines in ready:
            writer.append_encoded(lines)

    result = timed(work, sum(map(len, batches)))
    os.close(writer._owner)
    return result


def rolled(root: Path, batches: list[list[Event]]) -> dict[str, Any]:
    """Roll a segment, and tell what an event takes before and after."""
    shutil.rmtree(root / "lake", ignore_errors=True)
    count = sum(map(len, batches))
    writer = LakeWriter(root / "lake", "b1", TypeRegistry([TYPE]), fsync="none", background=False)
    for batch in batches:
        writer.append(batch)
    segment = sum(path.stat().st_size for path in (root / "lake").rglob("*.wal"))
    result: dict[str, Any] = timed(writer.roll, count)
    writer.close()
    parquet = sum(file.size for file in Lake(root / "lake").files())
    per_event = {"segment_bytes_per_event": segment / count, "parquet_bytes_per_event": parquet / count}
    return result | {name: round(value, 1) for name, value in per_event.items()}


def read(root: Path, count: int) -> dict[str, Any]:
    """Read all of it as events and as columns, and a little with a filter."""
    lake = Lake(root / "lake")
    selective = 'bench.Departure: origin = "JFK" and dep_delay > 99'
    list(lake.scan(filter=selective))  # the matcher gets ready
    return {
        "events": timed(lambda: sum(1 for _ in lake.events()), count),
        "batches": timed(lambda: sum(batch.num_rows for batch in lake.scan("bench.Departure")), count),
        "filtered": timed(lambda: sum(batch.num_rows for batch in lake.scan(filter=selective)), count),
    }


def imports(root: Path, rows: int) -> dict[str, Any]:
    """Import the same rows from files of each format."""
    n = range(rows)
    table = pa.table(
        {
            "time": pa.array([1_767_225_600_000_000 + 200_000 * i for i in n], pa.timestamp("us", "UTC")),
            "origin": pa.array([PLACES[i % 3] for i in n]),
            "dest": pa.array([PLACES[i * 7 % 8] for i in n]),
            "carrier": pa.array(["UA" if i % 5 else "AA" for i in n]),
            "flight": pa.array([i % 4000 for i in n]),
            "dep_delay": pa.array([(i * 37 % 1000) / 10 for i in n]),
        }
    )
    pq.write_table(table, root / "rows.parquet")
    pa_csv.write_csv(table, root / "rows.csv")
    few = table.slice(0, rows // 10)
    with open(root / "rows.jsonl", "w") as file:
        for row in few.to_pylist():
            file.write(json.dumps(row | {"time": row["time"].isoformat()}) + "\n")
    found = {}
    for name, count in (("rows.parquet", rows), ("rows.csv", rows), ("rows.jsonl", rows // 10)):
        lake = root / f"import-{name}"
        work = partial(import_file, root / name, lake, naming=Naming(type="bench.Departure"))
        result: dict[str, Any] = timed(work, count)
        assert sum(batch.num_rows for batch in Lake(lake).scan(columns=["@id"])) == count
        found[name.partition(".")[2]] = result | {"rows": count}
    return found


def main() -> None:
    """Run all and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--import-rows", type=int, default=1_000_000)
    parser.add_argument("--dir", type=Path, help="where to write; else a temporary directory")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="bench-lake-", dir=given.dir))
    try:
        made = [event(n) for n in range(given.events)]
        batches = [made[i : i + BATCH] for i in range(0, len(made), BATCH)]
        single = [[each] for each in made[: max(1, given.events // 100)]]
        result: dict[str, Any] = {
            "events": given.events,
            "batch": BATCH,
            "append": {},
            "append_one_by_one": {},
        }
        for fsync in ("batch", "interval", "none"):
            result["append"][fsync] = appended(root, batches, fsync, encoded=False)
            result["append"][f"{fsync}, encoded"] = appended(root, batches, fsync, encoded=True)
            result["append_one_by_one"][fsync] = appended(root, single, fsync, encoded=False)
        for name, work in (("append", batches), ("append_one_by_one", single)):
            for sync in (True, False):
                lines = timed(lambda w=work, s=sync: json_lines(root / "l.jsonl", w, s), sum(map(len, work)))  # type: ignore[misc]
                result[name]["json lines, " + ("fsync each batch" if sync else "no fsync")] = lines
        size = (root / "l.jsonl").stat().st_size / len(single)
        result["roll"] = rolled(root, batches) | {"json_lines_bytes_per_event": round(size, 1)}
        result["read"] = read(root, given.events)
        result["import"] = imports(root, given.import_rows)
        print(json.dumps(result, indent=2))
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
